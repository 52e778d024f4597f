/** Linked panes: the stages of one graph side by side, and what belongs together in them. */

import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { type FormText, type LinkedPanes, panesReader, readFormText } from "../chunks";
import { useChunk } from "../data";
import { GraphPicker, chosenGraph } from "../graphs";
import { type Lines, NATIVE, type Selection, indexLines, readSelection } from "../linking";
import { Empty, Loaded } from "../parts";
import { type Route, adjust, go } from "../route";
import type { Graph, Index } from "../schema";
import { brief } from "../text";
import { NativePane, formChoice } from "./native";
import { OperationList, useOperationKeys } from "./operations";
import { PaneStrip, StagePane } from "./panes";

interface Properties {
  index: Index;
  route: Route;
}

/** As many panes at first as can be read side by side. */
function preferredPanes(): string[] {
  const panes = ["python", "post-grad", "kernel"];
  if (window.innerWidth >= 1500) panes.push("loop-body");
  return window.innerWidth >= 1800 ? [...panes, NATIVE] : panes;
}

/** Forget what was chosen in the graph that was shown. */
const NOTHING = { op: null, pane: null, line: null, kernel: null, module: null };

export function Explorer({ index, route }: Properties): JSX.Element {
  const graph = chosenGraph(index, route);
  if (!graph) return <Empty>No graph was recorded, so there are no stages to show side by side.</Empty>;
  return <GraphPanes index={index} route={route} graph={graph} />;
}

function GraphPanes({ index, route, graph }: Properties & { graph: Graph }): JSX.Element {
  const chunk = useChunk(graph.chunk, panesReader(graph.chunk));
  const choose = (one: Graph): void =>
    go("explorer", { graph: one.index, panes: route.get("panes"), words: route.get("words") });
  return (
    <div class="explorer">
      <h1 class="unseen">Linked panes of {brief(graph.key, 80)}</h1>
      <div class="toolbar">
        <GraphPicker index={index} graph={graph} onChoose={choose} />
        {chunk.state === "ready" && <PaneToggles chunk={chunk.value} route={route} />}
      </div>
      <Loaded chunk={chunk} none="The stages of this graph were not recorded.">
        {(value) => <Linked chunk={value} route={route} graph={graph} />}
      </Loaded>
    </div>
  );
}

interface PaneName {
  id: string;
  title: string;
  empty: boolean;
}

function paneNames(chunk: LinkedPanes): PaneName[] {
  const stages = chunk.panes.map((pane) => ({ id: pane.id, title: pane.title, empty: pane.text === "" }));
  const native = { id: NATIVE, title: "Native", empty: chunk.kernels.every((kernel) => kernel.forms.length === 0) };
  return [...stages, native];
}

function shownPanes(chunk: LinkedPanes, route: Route): string[] {
  const names = paneNames(chunk);
  const asked = route.get("panes");
  if (asked) return names.map((name) => name.id).filter((id) => asked.split(",").includes(id));
  const full = names.filter((name) => !name.empty).map((name) => name.id);
  const preferred = full.filter((id) => preferredPanes().includes(id));
  return preferred.length > 1 ? preferred : full.slice(0, 4);
}

function PaneToggles({ chunk, route }: { chunk: LinkedPanes; route: Route }): JSX.Element {
  const names = paneNames(chunk);
  const shown = shownPanes(chunk, route);
  const toggle = (id: string): void => {
    const next = shown.includes(id) ? shown.filter((one) => one !== id) : [...shown, id];
    adjust({ panes: next.length ? next.join(",") : "none" });
  };
  return (
    <div class="choices wrap" role="group" aria-label="Panes that are shown">
      {names.map((name) => (
        <button
          key={name.id}
          type="button"
          class={name.empty ? "hollow" : ""}
          aria-pressed={shown.includes(name.id)}
          title={name.empty ? `${name.title}: nothing recorded` : name.title}
          onClick={() => toggle(name.id)}
        >
          {name.title}
        </button>
      ))}
    </div>
  );
}

function Linked({ chunk, route, graph }: { chunk: LinkedPanes; route: Route; graph: Graph }): JSX.Element {
  const lines = useMemo(() => indexLines(chunk), [chunk]);
  const { selection, form } = useSelection(chunk, route, lines);
  useOperationKeys(chunk, selection);
  const shown = shownPanes(chunk, route);
  const revealed = `${graph.index} ${selection.operations.join(" ")} ${selection.kernel} ${selection.line}`;
  const panes = chunk.panes.filter((pane) => shown.includes(pane.id));
  return (
    <div class="linked">
      <OperationList chunk={chunk} selection={selection} words={route.get("words")} />
      <PaneStrip>
        {panes.map((pane) => (
          <StagePane
            key={pane.id}
            pane={pane}
            chunk={chunk}
            lines={lines}
            selection={selection}
            revealed={revealed}
          />
        ))}
        {shown.includes(NATIVE) && (
          <NativePane
            key={NATIVE}
            chunk={chunk}
            lines={lines}
            selection={selection}
            form={form}
            choice={formChoice(chunk, selection, route)}
            revealed={revealed}
          />
        )}
      </PaneStrip>
      {shown.length === 0 && <Empty>No pane is selected: select one above.</Empty>}
    </div>
  );
}

/** The selection of the address. A line of a native form needs that form to be understood. */
function useSelection(
  chunk: LinkedPanes,
  route: Route,
  lines: Lines,
): { selection: Selection; form: ReturnType<typeof useChunk<FormText>> } {
  const shown = shownPanes(chunk, route).includes(NATIVE);
  const plain = useMemo(() => readSelection(route, chunk, lines, null), [chunk, lines, window.location.hash]);
  const choice = formChoice(chunk, plain, route);
  const form = useChunk(shown ? (choice.form?.chunk ?? "") : "", readFormText);
  const text = form.state === "ready" ? form.value : null;
  const selection = useMemo(
    () => readSelection(route, chunk, lines, text),
    [chunk, lines, text, window.location.hash],
  );
  useEffect(() => clearOnEscape(), []);
  return { selection, form };
}

function clearOnEscape(): () => void {
  const onKeyDown = (event: KeyboardEvent): void => {
    // In a dialog, Escape closes it and nothing else.
    if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    adjust(NOTHING);
  };
  window.addEventListener("keydown", onKeyDown);
  return () => window.removeEventListener("keydown", onKeyDown);
}

