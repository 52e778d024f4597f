/** What each pass did to the graph, as a diff. */

import { MergeView, unifiedMergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Pass, readPassesChunk } from "../contract";
import { useChunk } from "../data";
import { readOnly, showText } from "../editor";
import { GraphPicker, chosenGraph } from "../graphs";
import { Listbox } from "../listbox";
import { Choices, CopyButton, Empty, Loaded } from "../parts";
import { type Route, adjust, go } from "../route";
import type { Graph, Index } from "../schema";
import { brief, duration } from "../text";

const NONE = "No pass changed this graph, or its passes were not recorded.";

export function Passes({ index, route }: { index: Index; route: Route }): JSX.Element {
  const graph = chosenGraph(index, route);
  if (!graph) return <Empty>No graph was recorded, so there are no passes to show.</Empty>;
  return <PassesOfGraph index={index} route={route} graph={graph} />;
}

function PassesOfGraph({ index, route, graph }: { index: Index; route: Route; graph: Graph }): JSX.Element {
  const chunk = useChunk(graph.passes, readPassesChunk);
  const style = route.get("style") === "unified" ? "unified" : "split";
  return (
    <div class="fill">
      <h1>Passes</h1>
      <div class="toolbar">
        <GraphPicker
          index={index}
          graph={graph}
          onChoose={(one) => go("passes", { graph: one.index, style: route.get("style") })}
        />
        <Choices
          label="Form of the diff"
          value={style}
          choices={[
            { value: "split", label: "Side by side" },
            { value: "unified", label: "Unified" },
          ]}
          onChoose={(value) => adjust({ style: value })}
        />
      </div>
      <Loaded chunk={chunk} none={NONE}>
        {(passes) => (passes.length ? <PassList passes={passes} route={route} style={style} /> : <Empty>{NONE}</Empty>)}
      </Loaded>
    </div>
  );
}

function PassList({ passes, route, style }: { passes: Pass[]; route: Route; style: string }): JSX.Element {
  const place = Math.min(route.position("pass") ?? 0, passes.length - 1);
  const pass = passes[place]!;
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
          <span class="muted">{style === "split" && "before on the left, after on the right"}</span>
          <CopyButton text={pass.before} label="Copy before: the graph before the pass" title="Copy before" />
          <CopyButton text={pass.after} label="Copy after: the graph after the pass" title="Copy after" />
        </div>
        <Diff key={style} pass={pass} style={style} />
      </section>
    </div>
  );
}

function Diff({ pass, style }: { pass: Pass; style: string }): JSX.Element {
  const parent = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const view = style === "unified" ? unified(pass, parent.current!) : sideBySide(pass, parent.current!);
    return () => view.destroy();
  }, [pass, style]);
  return <div class={`diff diff-${style}`} ref={parent} tabIndex={-1} />;
}

// Very different texts would take the exact algorithm minutes.
const BOUNDED = { scanLimit: 1000, timeout: 400 };
const FOLDED = { margin: 3, minSize: 8 };

function side(text: string, label: string) {
  const shown = showText(text);
  return { doc: shown.document, extensions: [readOnly({ label, language: "fx", labels: null }), shown.cuts] };
}

function sideBySide(pass: Pass, parent: HTMLElement): MergeView {
  return new MergeView({
    a: side(pass.before, "Before the pass"),
    b: side(pass.after, "After the pass"),
    parent,
    highlightChanges: true,
    gutter: true,
    collapseUnchanged: FOLDED,
    diffConfig: BOUNDED,
  });
}

function unified(pass: Pass, parent: HTMLElement): EditorView {
  const after = side(pass.after, "After the pass, with what it removed");
  const merge = unifiedMergeView({
    original: showText(pass.before).document,
    mergeControls: false,
    gutter: true,
    collapseUnchanged: FOLDED,
    diffConfig: BOUNDED,
  });
  return new EditorView({ state: EditorState.create({ doc: after.doc, extensions: [after.extensions, merge] }), parent });
}
