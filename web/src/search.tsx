/** The search box at the top: kernels, operations, graphs and places in the source. */

import type { JSX } from "preact";
import { useId, useMemo, useRef, useState } from "preact/hooks";
import { address } from "./route";
import type { Index } from "./schema";
import { brief } from "./text";

interface Hit {
  kind: string;
  name: string;
  note: string;
  address: string;
}

const MOST = 40;

/** Everything that can be found without inflating a chunk. */
function collect(index: Index): Hit[] {
  const hits: Hit[] = [];
  const key = (graph: number | null): string => (graph === null ? "" : (index.graphs[graph]?.key ?? ""));
  for (const graph of index.graphs) {
    hits.push({ kind: "graph", name: graph.key, note: graph.phase, address: address("explorer", { graph: graph.index }) });
  }
  const operations = new Set<string>();
  for (const row of index.kernels) {
    const { graph } = row;
    const kernel = address("explorer", { graph, kernel: row.id || row.name });
    hits.push({ kind: "kernel", name: row.id || row.name, note: key(graph), address: kernel });
    for (const name of row.operations.split(/,\s*/)) {
      const known = `${graph} ${name}`;
      if (!name || operations.has(known)) continue;
      operations.add(known);
      hits.push({ kind: "operation", name, note: key(graph), address: address("explorer", { graph, op: name }) });
    }
  }
  return [...hits, ...places(index)];
}

function places(index: Index): Hit[] {
  const hits: Hit[] = [];
  index.compiles.forEach((compile, place) => {
    const target = address("compiles", { compile: place });
    const note = `${compile.id} ${compile.function}`;
    if (compile.place) hits.push({ kind: "source", name: compile.place, note, address: target });
    for (const one of compile.breaks) {
      if (one.source) hits.push({ kind: "graph break", name: one.source, note: one.reason, address: target });
    }
  });
  for (const finding of index.findings) {
    hits.push({ kind: "finding", name: finding.title || finding.rule, note: finding.place, address: address("overview") });
  }
  return hits;
}

function find(hits: Hit[], words: string): Hit[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return [];
  const found: Hit[] = [];
  for (const hit of hits) {
    const haystack = `${hit.kind} ${hit.name} ${hit.note}`.toLowerCase();
    if (wanted.every((word) => haystack.includes(word))) found.push(hit);
    if (found.length > 2000) break;
  }
  const first = wanted[0]!;
  const rank = (hit: Hit): number => (hit.name.toLowerCase() === first ? 0 : hit.name.toLowerCase().startsWith(first) ? 1 : 2);
  return found.sort((left, right) => rank(left) - rank(right)).slice(0, MOST);
}

export function GlobalSearch({ index }: { index: Index }): JSX.Element {
  const [words, setWords] = useState("");
  const [active, setActive] = useState(0);
  const [open, setOpen] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  const started = words !== "";
  const hits = useMemo(() => (started ? collect(index) : []), [index, started]);
  const found = useMemo(() => find(hits, words), [hits, words]);
  const shown = open && words.trim() !== "";
  const choose = (hit: Hit | undefined): void => {
    if (!hit) return;
    window.location.hash = hit.address;
    setOpen(false);
    input.current?.blur();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter") choose(found[active]);
    else if (event.key === "ArrowDown") setActive(Math.min(active + 1, found.length - 1));
    else if (event.key === "ArrowUp") setActive(Math.max(active - 1, 0));
    else if (event.key === "Escape") {
      event.preventDefault();
      setWords("");
      setOpen(false);
      input.current?.blur();
      return;
    } else return;
    event.preventDefault();
  };
  return (
    <div class="global-search" role="search">
      <input
        ref={input}
        id="global-search"
        type="search"
        role="combobox"
        list={undefined}
        aria-label="Search kernels, operations, graphs and source places"
        aria-expanded={shown}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={shown && found[active] ? `${id}-${active}` : undefined}
        placeholder="Search kernels, operations, graphs, source  (Ctrl K)"
        value={words}
        onInput={(event) => {
          setWords(event.currentTarget.value);
          setActive(0);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={onKeyDown}
      />
      <ul id={`${id}-list`} role="listbox" aria-label="Search results" hidden={!shown}>
        {shown &&
          found.map((hit, place) => (
            <li
              key={place}
              id={`${id}-${place}`}
              role="option"
              aria-selected={place === active}
              onPointerDown={(event) => {
                event.preventDefault();
                choose(hit);
              }}
            >
              <span class="kind">{hit.kind}</span>
              <span class="mono">{brief(hit.name, 100)}</span>
              <span class="muted">{brief(hit.note, 60)}</span>
            </li>
          ))}
        {shown && found.length === 0 && (
          <li role="option" aria-selected="false" aria-disabled="true">
            Nothing in this recording matches.
          </li>
        )}
      </ul>
    </div>
  );
}
