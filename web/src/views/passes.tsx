/** What each pass did to the graph, as a diff. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type Pass, readPasses } from "../chunks";
import { Code } from "../code";
import { useChunk } from "../data";
import { GraphPicker, chosenGraph } from "../graphs";
import { Listbox } from "../listbox";
import { type NodeDiff, diffNodes } from "../node_diff";
import { CopyButton, Empty, Loaded } from "../parts";
import { type Route, adjust, go } from "../route";
import type { Graph, Index } from "../schema";
import { brief, duration, plural } from "../text";

const NONE = "No pass changed this graph, or its passes were not recorded.";

export function Passes({ index, route }: { index: Index; route: Route }): JSX.Element {
  const graph = chosenGraph(index, route);
  if (!graph) return <Empty>No graph was recorded, so there are no passes to show.</Empty>;
  return <PassesOfGraph index={index} route={route} graph={graph} />;
}

function PassesOfGraph({ index, route, graph }: { index: Index; route: Route; graph: Graph }): JSX.Element {
  const chunk = useChunk(graph.passes, readPasses);
  return (
    <div class="fill">
      <h1>Passes</h1>
      <div class="toolbar">
        <GraphPicker
          index={index}
          graph={graph}
          onChoose={(one) => go("passes", { graph: one.index })}
        />
      </div>
      <Loaded chunk={chunk} none={NONE}>
        {(passes) => (passes.length ? <PassList passes={passes} route={route} /> : <Empty>{NONE}</Empty>)}
      </Loaded>
    </div>
  );
}

function PassList({ passes, route }: { passes: Pass[]; route: Route }): JSX.Element {
  const place = Math.min(route.position("pass") ?? 0, passes.length - 1);
  const pass = passes[place]!;
  const diff = useMemo(() => diffNodes(pass.before, pass.after), [pass]);
  return (
    <div class="split">
      <aside class="side" aria-label="Passes that changed the graph">
        <Listbox
          label="Passes that changed the graph"
          items={passes}
          height={44}
          chosen={new Set([place])}
          active={place}
          onChoose={(_, chosen) => adjust({ pass: chosen })}
          show={(one, number) => (
            <span class="two-lines" title={brief(one.name)}>
              <span class="mono">
                {number + 1}. {brief(one.name, 80)}
              </span>
              <span class="muted">{[brief(one.stage, 40), duration(one.seconds)].filter(Boolean).join(", ")}</span>
            </span>
          )}
        />
      </aside>
      <section class="diff-holder" aria-label={`Pass ${brief(pass.name, 60)}`}>
        <div class="diff-head">
          <h2 class="mono">{brief(pass.name, 120)}</h2>
          <span class="muted">{counts(diff)}</span>
          <CopyButton text={pass.before} label="Copy before: the graph before the pass" title="Copy before" />
          <CopyButton text={pass.after} label="Copy after: the graph after the pass" title="Copy after" />
        </div>
        <Diff pass={pass} diff={diff} />
      </section>
    </div>
  );
}

function Diff({ pass, diff }: { pass: Pass; diff: NodeDiff }): JSX.Element {
  return (
    <div class="diff">
      <Code
        label="What the pass did: lines with a minus are removed, with a plus added"
        language="fx"
        text={diff.text}
        labels={useMemo(() => diff.text.split("\n").map(() => ""), [diff])}
        marks={diff.marks}
        line={firstLine(diff)}
        revealed={pass.name}
      />
    </div>
  );
}

function firstLine({ marks }: NodeDiff): number | null {
  return [...marks].find(([, classes]) => classes !== "diff-folded")?.[0] ?? null;
}

function counts(diff: NodeDiff): string {
  const parts: [number, string][] = [
    [diff.removed, "removed"],
    [diff.added, "added"],
    [diff.changed, "changed"],
    [diff.moved, "moved"],
  ];
  const said = parts.filter(([count]) => count > 0).map(([count, what]) => `${plural(count, "node")} ${what}`);
  return said.join(", ") || "no node differs as it is printed";
}
