/** Find in a pane: the browser's own search does not see lines that are not drawn. */

import { type Extension, RangeSetBuilder, StateEffect, StateField, type Text } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView } from "@codemirror/view";
import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { revealLine } from "./editor";
import { amount } from "./text";

interface Match {
  from: number;
  to: number;
}

interface Found {
  matches: Match[];
  current: number;
}

const MOST = 10_000;
const setFound = StateEffect.define<Found>();
const here = Decoration.mark({ class: "found found-here" });
const elsewhere = Decoration.mark({ class: "found" });

const drawn = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(decorations, transaction) {
    for (const effect of transaction.effects) if (effect.is(setFound)) return draw(effect.value);
    return decorations;
  },
  provide: (field) => EditorView.decorations.from(field),
});

function draw({ matches, current }: Found): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  matches.forEach((match, place) => builder.add(match.from, match.to, place === current ? here : elsewhere));
  return builder.finish();
}

/** Marks what is found; Ctrl F asks for the field to type in. */
export function finding(open: () => void): Extension {
  const onKey = EditorView.domEventHandlers({
    keydown(event) {
      if (event.key.toLowerCase() !== "f" || !(event.ctrlKey || event.metaKey)) return false;
      event.preventDefault();
      open();
      return true;
    },
  });
  return [drawn, onKey];
}

function matchesOf(document: Text, words: string): Match[] {
  const wanted = words.toLowerCase();
  const matches: Match[] = [];
  if (!wanted) return matches;
  const text = document.toString().toLowerCase();
  for (let at = text.indexOf(wanted); at >= 0 && matches.length < MOST; at = text.indexOf(wanted, at + wanted.length)) {
    matches.push({ from: at, to: at + wanted.length });
  }
  return matches;
}

interface Properties {
  label: string;
  /** The editor, once it is there. */
  editor: () => EditorView | null;
  onClose: () => void;
}

export function FindBar({ label, editor, onClose }: Properties): JSX.Element {
  const [words, setWords] = useState("");
  const [found, setState] = useState<Found>({ matches: [], current: 0 });
  const field = useRef<HTMLInputElement>(null);
  // At once: what is typed next belongs in here.
  useLayoutEffect(() => {
    field.current?.focus();
    return () => void editor()?.dispatch({ effects: setFound.of({ matches: [], current: 0 }) });
  }, []);
  const show = (next: Found): void => {
    const view = editor();
    setState(next);
    view?.dispatch({ effects: setFound.of(next) });
    const match = next.matches[next.current];
    if (view && match) revealLine(view, view.state.doc.lineAt(match.from).number);
  };
  const step = (by: number): void => {
    const { matches, current } = found;
    if (matches.length) show({ matches, current: (current + by + matches.length) % matches.length });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      onClose();
      editor()?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="find" role="search">
      <input
        ref={field}
        type="search"
        aria-label={`Find in ${label}`}
        placeholder="Find in this pane"
        value={words}
        onInput={(event) => {
          const typed = event.currentTarget.value;
          const view = editor();
          setWords(typed);
          if (view) show({ matches: matchesOf(view.state.doc, typed), current: 0 });
        }}
        onKeyDown={onKeyDown}
      />
      <span class="count" role="status">
        {words && (found.matches.length ? `${amount(found.current + 1)} of ${amount(found.matches.length)}` : "not found")}
      </span>
      <button type="button" class="small" aria-label="Previous match" onClick={() => step(-1)}>
        ↑
      </button>
      <button type="button" class="small" aria-label="Next match" onClick={() => step(1)}>
        ↓
      </button>
      <button type="button" class="small" aria-label="Close find" onClick={onClose}>
        ×
      </button>
    </div>
  );
}
