/** Which graph a view is about: a button that opens a searchable list. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Listbox } from "./listbox";
import type { Graph, Index } from "./schema";
import { brief, plural } from "./text";
import type { Route } from "./route";

/** The graph that the address names, or the first. */
export function chosenGraph(index: Index, route: Route): Graph | null {
  const position = route.position("graph");
  return index.graphs[position ?? 0] ?? index.graphs[0] ?? null;
}

export function graphByKey(index: Index, key: string): Graph | null {
  return index.graphs.find((graph) => graph.key === key) ?? null;
}

export function graphFacts(graph: Graph): string {
  if (graph.cached) return "from a cache, no kernels generated";
  const facts = [plural(graph.operations, "operation"), plural(graph.kernels, "kernel")];
  if (!graph.finished) facts.push("not finished");
  return facts.join(", ");
}

/** Kernels that Inductor generated; the table of kernels lists calls of libraries besides. */
export function generatedKernels(index: Index): number {
  return index.kernels.filter((row) => row.language !== "extern").length;
}

/** Graphs whose kernels were not generated in this run, and are not in the recording. */
export function graphsFromCache(index: Index): number {
  return index.graphs.filter((graph) => graph.cached).length;
}

interface Properties {
  index: Index;
  graph: Graph;
  onChoose: (graph: Graph) => void;
}

export function GraphPicker({ index, graph, onChoose }: Properties): JSX.Element {
  const [open, setOpen] = useState(false);
  const holder = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const close = (event: Event): void => {
      if (!holder.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    return () => document.removeEventListener("pointerdown", close);
  }, [open]);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    setOpen(false);
    holder.current?.querySelector("button")?.focus();
  };
  return (
    <div class="picker" ref={holder} onKeyDown={onKeyDown}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="muted">Graph</span> <strong>{brief(graph.key, 60)}</strong>
        <span class="muted"> {graphFacts(graph)}</span> <span aria-hidden="true">▾</span>
      </button>
      {open && <GraphList index={index} graph={graph} onChoose={onChoose} close={() => setOpen(false)} />}
    </div>
  );
}

function GraphList({ index, graph, onChoose, close }: Properties & { close: () => void }): JSX.Element {
  const [words, setWords] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const found = useMemo(() => index.graphs.filter((one) => matches(index, one, words)), [index, words]);
  const active = found.indexOf(graph);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || !found[0]) return;
    onChoose(found[0]);
    close();
  };
  return (
    <div class="popover">
      <input
        ref={input}
        type="search"
        aria-label="Find a graph"
        placeholder={`Find one of ${plural(index.graphs.length, "graph")}`}
        value={words}
        onInput={(event) => setWords(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <Listbox
        label="Graphs"
        items={found}
        height={44}
        chosen={new Set([active])}
        active={active}
        onChoose={onChoose}
        show={(one) => <GraphEntry index={index} graph={one} />}
      />
      {found.length === 0 && <p class="empty">No graph matches.</p>}
    </div>
  );
}

function GraphEntry({ index, graph }: { index: Index; graph: Graph }): JSX.Element {
  const compile = graph.compile === null ? undefined : index.compiles[graph.compile];
  return (
    <span class="two-lines">
      <span class="mono">{brief(graph.key, 80)}</span>
      <span class="muted">
        {compile?.function ? `${brief(compile.function, 40)}, ` : ""}
        {graphFacts(graph)}
      </span>
    </span>
  );
}

function matches(index: Index, graph: Graph, words: string): boolean {
  const compile = graph.compile === null ? undefined : index.compiles[graph.compile];
  const haystack = `${graph.key} ${graph.phase} ${compile?.function ?? ""} ${compile?.place ?? ""}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => haystack.includes(word));
}
