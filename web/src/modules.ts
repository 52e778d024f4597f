/** The tree of modules, made fit for drawing: what each one costs, and which are made alike. */

import type { Module, ModuleKernel, ModuleTree } from "./contract";

export interface Cost {
  seconds: number;
  bytes: number;
}

export interface ModuleNode {
  module: Module;
  place: number;
  parts: ModuleNode[];
  /** Kernels at this module that belong to none of its parts alone. */
  kernels: ModuleKernel[];
  /** Of it and of all its parts. */
  cost: Cost;
}

/** Modules that are made alike, as one; `nodes` has more than one of them then. */
export interface ModuleGroup {
  nodes: ModuleNode[];
  label: string;
  cost: Cost;
}

export function buildTree(tree: ModuleTree): ModuleNode[] {
  const nodes = tree.modules.map((module, place): ModuleNode => ({
    module, place, parts: [], kernels: [], cost: { seconds: 0, bytes: 0 },
  }));
  for (const kernel of tree.kernels) nodes[kernel.module]?.kernels.push(kernel);
  const roots: ModuleNode[] = [];
  /* A part comes after what it is a part of, also in a damaged page. */
  for (const node of nodes) {
    const { parent } = node.module;
    if (parent !== null && parent < node.place) nodes[parent]!.parts.push(node);
    else roots.push(node);
  }
  for (const node of [...nodes].reverse()) {
    for (const kernel of node.kernels) add(node.cost, { seconds: kernel.seconds ?? 0, bytes: kernel.bytes ?? 0 });
    for (const part of node.parts) add(node.cost, part.cost);
  }
  return roots.filter((root) => root.module.operations > 0 || root.kernels.length > 0);
}

function add(sum: Cost, more: Cost): void {
  sum.seconds += more.seconds;
  sum.bytes += more.bytes;
}

export function groupAlike(parts: ModuleNode[]): ModuleGroup[] {
  const groups = new Map<number, ModuleNode[]>();
  for (const part of parts) {
    const key = part.module.alike ?? part.place;
    groups.set(key, [...(groups.get(key) ?? []), part]);
  }
  return [...groups.values()].map((nodes) => {
    const cost = { seconds: 0, bytes: 0 };
    for (const node of nodes) add(cost, node.cost);
    return { nodes, label: groupLabel(nodes), cost };
  });
}

function groupLabel(nodes: ModuleNode[]): string {
  const first = nodes[0]!.module.label;
  return nodes.length === 1 ? first : `${first} … ${nodes[nodes.length - 1]!.module.label}`;
}

/** What sizes stand for: measured seconds if there are any, else modelled bytes. */
export function isMeasured(roots: ModuleNode[]): boolean {
  return roots.some((root) => root.cost.seconds > 0);
}
