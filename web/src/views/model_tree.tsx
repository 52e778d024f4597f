/** The model as its author wrote it: a tree of modules, each a link into the linked panes. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type ModuleGroup, type ModuleNode, groupAlike, isMeasured } from "../modules";
import { address } from "../route";
import { brief, plural } from "../text";
import { moduleAddress, told, valueOf } from "./treemap";

export function ModelTree({ roots }: { roots: ModuleNode[] }): JSX.Element | null {
  if (roots.length === 0) return null;
  const measured = isMeasured(roots);
  return (
    <section aria-labelledby="model-title">
      <h2 id="model-title">The model</h2>
      <p class="prose">
        Choose a module to see its code, its operations and its kernels side by side. A kernel stands at the innermost
        module that holds all it computes.
      </p>
      <ul class="module-tree">
        {roots.map((root) => (
          <Branch key={root.place} group={{ nodes: [root], label: root.module.label, cost: root.cost }} measured={measured} open />
        ))}
      </ul>
    </section>
  );
}

interface Properties {
  group: ModuleGroup;
  measured: boolean;
  open?: boolean;
}

function Branch({ group, measured, open = false }: Properties): JSX.Element {
  const [shown, setShown] = useState(open);
  const several = group.nodes.length > 1;
  const node = group.nodes[0]!;
  const has = several || node.parts.length > 0 || node.kernels.length > 0;
  const operations = group.nodes.reduce((sum, one) => sum + one.module.operations, 0);
  return (
    <li>
      <div class="module-row">
        {has ? (
          <button
            type="button"
            class="small toggle"
            aria-expanded={shown}
            aria-label={`Parts of ${brief(group.label, 80)}`}
            onClick={() => setShown(!shown)}
          >
            {shown ? "▾" : "▸"}
          </button>
        ) : (
          <span class="toggle" />
        )}
        <a class="mono" href={moduleAddress(node)}>
          {brief(group.label, 120)}
        </a>
        {several && (
          <strong title="Modules of the same class with the same parts">×{group.nodes.length}</strong>
        )}
        <span class="muted">{brief(node.module.kind, 80)}</span>
        <span class="muted numeric">
          {plural(operations, "operation")}
          {valueOf(group.cost, measured) > 0 && `; ${told(group.cost, measured)}`}
        </span>
      </div>
      {shown && (several ? <Each group={group} measured={measured} /> : <Parts node={node} measured={measured} />)}
    </li>
  );
}

function Each({ group, measured }: Properties): JSX.Element {
  return (
    <ul>
      {group.nodes.map((node) => (
        <Branch
          key={node.place}
          group={{ nodes: [node], label: node.module.label, cost: node.cost }}
          measured={measured}
        />
      ))}
    </ul>
  );
}

function Parts({ node, measured }: { node: ModuleNode; measured: boolean }): JSX.Element {
  return (
    <ul>
      {groupAlike(node.parts).map((group) => (
        <Branch key={group.nodes[0]!.place} group={group} measured={measured} />
      ))}
      {node.kernels.slice(0, 200).map((kernel, place) => (
        <li key={`kernel-${place}`} class="module-row">
          <span class="toggle" aria-hidden="true">
            ·
          </span>
          <a class="mono" href={address("explorer", { graph: kernel.graph, kernel: kernel.id })}>
            {brief(kernel.name, 90)}
          </a>
          <span class="muted numeric">
            {told({ seconds: kernel.seconds ?? 0, bytes: kernel.bytes ?? 0 }, measured && kernel.seconds !== null)}
          </span>
        </li>
      ))}
      {node.kernels.length > 200 && <li class="muted">and {plural(node.kernels.length - 200, "kernel")} more</li>}
    </ul>
  );
}
