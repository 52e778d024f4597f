/** Search results: every name, and every line of every text, that holds the words. */

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { panesReader, readFormText } from "../chunks";
import { readGuardsChunk, readNamesChunk } from "../contract";
import { source, useChunk } from "../data";
import { type Hit, findHits, useHits, wordsOf } from "../hits";
import { type Route, address, adjust } from "../route";
import type { Graph, Index } from "../schema";
import { type Column, DataTable } from "../table";
import { amount, brief, plural, splitLines } from "../text";

const MOST_NAMES = 500;
const MOST_LINES = 2000;

interface Line extends Hit {
  line: number;
}

export function SearchResults({ index, route }: { index: Index; route: Route }): JSX.Element {
  const words = route.get("q");
  const chunk = useChunk(words ? index.names : "", readNamesChunk);
  const things = chunk.state === "ready" ? chunk.value : null;
  const hits = useHits(index, words !== "", things);
  const names = useMemo(() => findHits(hits, words, MOST_NAMES), [hits, words]);
  const { lines, read, whole } = useLines(index, words);
  const rows = useMemo(() => [...names.map((hit) => ({ ...hit, line: 0 })), ...lines], [names, lines]);
  return (
    <div class="fill">
      <h1>Search</h1>
      <div class="toolbar">
        <label class="field grow">
          <span>Words</span>
          <input type="search" data-search value={words} onInput={(event) => adjust({ q: event.currentTarget.value })} />
        </label>
      </div>
      <p class="muted" role="status">
        {words
          ? `${plural(names.length, "name")} and ${plural(lines.length, "line")}${lines.length >= MOST_LINES ? " (the first)" : ""} in ${amount(read)} of ${plural(whole, "text")}`
          : "Type words: a line or a name has to hold all of them."}
      </p>
      <DataTable
        label="Results"
        rows={rows}
        columns={COLUMNS}
        onOpen={(hit) => (window.location.hash = hit.address())}
        empty={words ? "Nothing in this recording matches." : "No words yet."}
        minWidth={640}
      />
    </div>
  );
}

const COLUMNS: Column<Line>[] = [
  { id: "kind", title: "Where", width: 22, value: (hit) => hit.kind },
  { id: "name", title: "Name or line", width: 60, value: (hit) => hit.name },
  { id: "note", title: "Of", width: 30, value: (hit) => hit.note },
  { id: "line", title: "Line", width: 8, numeric: true, value: (hit) => hit.line || null, show: (hit) => (hit.line ? amount(hit.line) : "") },
];

/** One text of the recording: how to read it, and where a line of it is shown. */
interface Text {
  load: () => Promise<Line[]>;
}

function useLines(index: Index, words: string): { lines: Line[]; read: number; whole: number } {
  const [state, setState] = useState<{ lines: Line[]; read: number }>({ lines: [], read: 0 });
  const texts = useMemo(() => textsOf(index, words), [index, words]);
  useEffect(() => {
    let stopped = false;
    setState({ lines: [], read: 0 });
    if (wordsOf(words).length === 0) return;
    const work = async (): Promise<void> => {
      let lines: Line[] = [];
      for (let read = 0; read < texts.length && !stopped && lines.length < MOST_LINES; read += 1) {
        const found = await texts[read]!.load().catch(() => []);
        lines = [...lines, ...found].slice(0, MOST_LINES);
        if (!stopped) setState({ lines, read: read + 1 });
      }
    };
    // Whoever types does not want to wait for what was typed before.
    const timer = window.setTimeout(() => void work(), 150);
    return () => {
      stopped = true;
      window.clearTimeout(timer);
    };
  }, [texts, words]);
  return { ...state, whole: texts.length };
}

function textsOf(index: Index, words: string): Text[] {
  const wanted = wordsOf(words);
  const graphs = index.graphs.map((graph) => ({ load: () => linesOfGraph(graph, wanted) }));
  const guards = index.compiles.flatMap((compile, place) =>
    compile.guards ? [{ load: () => linesOfGuards(compile.guards, compile.id, place, wanted) }] : [],
  );
  return [...graphs, ...guards];
}

async function linesOfGraph(graph: Graph, wanted: string[]): Promise<Line[]> {
  const chunk = await source.read(graph.chunk, panesReader(graph.chunk));
  const found = chunk.panes.flatMap((pane) =>
    matching(pane.text, wanted).map(([line, name]) => ({
      kind: pane.title,
      name,
      note: graph.key,
      line,
      address: () => address("explorer", { graph: graph.index, pane: pane.id, line, panes: paneList(pane.id) }),
    })),
  );
  for (const kernel of chunk.kernels) {
    for (const form of kernel.forms) {
      const { text } = await source.read(form.chunk, readFormText);
      found.push(
        ...matching(text, wanted).map(([line, name]) => ({
          kind: form.name.toUpperCase(),
          name,
          note: `${graph.key} ${kernel.id}`,
          line,
          address: () => address("explorer", {
            graph: graph.index, kernel: kernel.id, form: form.name, config: form.config, pane: "native", line, panes: "kernel,native",
          }),
        })),
      );
    }
  }
  return found;
}

function paneList(id: string): string {
  return [...new Set(["python", "kernel", id])].join(",");
}

async function linesOfGuards(chunk: string, id: string, place: number, wanted: string[]): Promise<Line[]> {
  const { text } = await source.read(chunk, readGuardsChunk);
  return matching(text, wanted).map(([line, name]) => ({
    kind: "Guard",
    name,
    note: id,
    line,
    address: () => address("compiles", { compile: place }),
  }));
}

function matching(text: string, wanted: string[]): [number, string][] {
  if (!wanted.every((word) => text.toLowerCase().includes(word))) return [];
  return splitLines(text).flatMap((line, place): [number, string][] => {
    const lower = line.toLowerCase();
    return wanted.every((word) => lower.includes(word)) ? [[place + 1, brief(line.trim(), 200)]] : [];
  });
}
