/** The search box at the top: whatever has a name, and from there all texts. */

import type { JSX } from "preact";
import { useId, useMemo, useRef, useState } from "preact/hooks";
import { readNamesChunk } from "./contract";
import { useChunk } from "./data";
import { type Hit, findHits, useHits } from "./hits";
import { address } from "./route";
import type { Index } from "./schema";
import { brief } from "./text";

const MOST = 40;

export function GlobalSearch({ index }: { index: Index }): JSX.Element {
  const [words, setWords] = useState("");
  const [active, setActive] = useState(0);
  const [open, setOpen] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  const started = words !== "";
  const names = useChunk(started ? index.names : "", readNamesChunk);
  const things = names.state === "ready" ? names.value : null;
  const hits = useHits(index, started, things);
  const found = useMemo(() => [...findHits(hits, words, MOST), everywhere(words)], [hits, words]);
  const shown = open && words.trim() !== "";
  const choose = (hit: Hit | undefined): void => {
    if (!hit) return;
    window.location.hash = hit.address();
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
        aria-label="Search operations, kernels, buffers, source lines and texts"
        aria-expanded={shown}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={shown && found[active] ? `${id}-${active}` : undefined}
        placeholder="Search operations, kernels, buffers, source  (Ctrl K)"
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
      </ul>
    </div>
  );
}

/** The last entry: what no name holds may be in a text. */
function everywhere(words: string): Hit {
  return { kind: "texts", name: `Search all texts for “${words.trim()}”`, note: "", address: () => address("search", { q: words.trim() }) };
}
