/** What can be searched for: names from the index and from the chunk of names. */

import { useMemo } from "preact/hooks";
import type { NamedThing } from "./contract";
import { address } from "./route";
import type { Index } from "./schema";

export interface Hit {
  kind: string;
  name: string;
  note: string;
  /** Made when it is needed: most hits are never shown. */
  address: () => string;
}

/** What words are looked up in: collected when there are some, not anew with every letter. */
export function useHits(index: Index, started: boolean, things: NamedThing[] | null): Hit[] {
  return useMemo(() => (started ? collectHits(index, things ?? []) : []), [index, started, things]);
}

/** Everything with a name; `things` is empty until its chunk has been inflated. */
function collectHits(index: Index, things: NamedThing[]): Hit[] {
  const key = (graph: number | null): string => (graph === null ? "" : (index.graphs[graph]?.key ?? ""));
  const graphs = index.graphs.map((graph) => ({
    kind: "graph",
    name: graph.key,
    note: graph.phase,
    address: () => address("explorer", { graph: graph.index }),
  }));
  const kernels = index.kernels.map((row) => ({
    kind: "kernel",
    name: row.id || row.name,
    note: `${key(row.graph)} ${row.operations}`,
    address: () => address("explorer", { graph: row.graph, kernel: row.id || row.name }),
  }));
  const named = things.map((thing) => ({
    kind: thing.kind,
    name: thing.name,
    note: `${key(thing.graph)} ${thing.note}`,
    address: () => addressOf(thing),
  }));
  return [...graphs, ...kernels, ...named, ...(things.length ? [] : operationsOfKernels(index)), ...places(index)];
}

function addressOf(thing: NamedThing): string {
  const { graph } = thing;
  if (thing.kind === "buffer") return address("buffers", { graph, buffer: thing.name });
  if (thing.kind === "node") return address("scheduler", { graph, node: thing.name, when: "before" });
  return address("explorer", { graph, op: thing.operations });
}

/** Until the names are there, the table of kernels knows some operations. */
function operationsOfKernels(index: Index): Hit[] {
  const known = new Map<string, Hit>();
  for (const { graph, operations } of index.kernels) {
    for (const name of operations.split(/,\s*/).filter(Boolean)) {
      const note = graph === null ? "" : (index.graphs[graph]?.key ?? "");
      known.set(`${graph} ${name}`, { kind: "operation", name, note, address: () => address("explorer", { graph, op: name }) });
    }
  }
  return [...known.values()];
}

function places(index: Index): Hit[] {
  const hits: Hit[] = [];
  index.compiles.forEach((compile, place) => {
    const target = (): string => address("compiles", { compile: place });
    const note = `${compile.id} ${compile.function}`;
    if (compile.place) hits.push({ kind: "source", name: compile.place, note, address: target });
    for (const one of compile.breaks) {
      if (one.source) hits.push({ kind: "graph break", name: one.source, note: one.reason, address: target });
    }
    for (const name of compile.decompositions.keys()) {
      hits.push({ kind: "decomposition", name, note, address: target });
    }
  });
  for (const finding of index.findings) {
    hits.push({ kind: "finding", name: finding.title || finding.rule, note: finding.place, address: () => address("overview") });
  }
  return hits;
}

export function wordsOf(text: string): string[] {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

const ENOUGH = 4000;

/** Hits that hold every word; those of that very name first, then those that begin so. */
export function findHits(hits: Hit[], text: string, most: number): Hit[] {
  const words = wordsOf(text);
  if (words.length === 0) return [];
  const found: Hit[] = [];
  for (const hit of hits) {
    const haystack = `${hit.kind} ${hit.name} ${hit.note}`.toLowerCase();
    if (words.every((word) => haystack.includes(word))) found.push(hit);
    if (found.length > ENOUGH) break;
  }
  const first = words[0]!;
  const rank = ({ name }: Hit): number => {
    const lower = name.toLowerCase();
    if (lower === first) return 0;
    return lower.startsWith(first) ? 1 : lower.includes(first) ? 2 : 3;
  };
  return found.sort((left, right) => rank(left) - rank(right)).slice(0, most);
}
