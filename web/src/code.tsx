/** A pane of code: lines are marked from outside, and a line can be chosen. */

import { EditorView } from "@codemirror/view";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Marks, addColours, paneState, revealLine, setMarks, showText } from "./editor";
import { FindBar, finding } from "./find";

export interface CodeProperties {
  label: string;
  language: string;
  text: string;
  labels?: string[] | null;
  marks?: Marks;
  /** Line to scroll to, each time that `revealed` changes. */
  line?: number | null;
  revealed?: string;
  onLine?: (line: number) => void;
}

const NONE: Marks = new Map();

export function Code(properties: CodeProperties): JSX.Element {
  const { label, language, text, labels = null, marks, line = null, revealed = "" } = properties;
  const parent = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const drawn = useRef<Marks | undefined>(undefined);
  const onLine = useRef(properties.onLine);
  onLine.current = properties.onLine;
  const shown = useMemo(() => showText(text), [text]);
  const [searching, setSearching] = useState(false);

  useEffect(() => {
    const extra = [chooser((chosen) => onLine.current?.(chosen)), finding(() => setSearching(true))];
    const state = paneState(shown, { label, labels }, marks ?? NONE, extra);
    const editor = new EditorView({ state });
    // Once the editors of all panes are made: making the next one would lay out those on the page.
    queueMicrotask(() => {
      if (view.current === editor) parent.current?.append(editor.dom);
    });
    view.current = editor;
    drawn.current = marks;
    // The text of all panes is painted first.
    const stop = afterFrames(4, () => addColours(editor, language));
    return () => {
      stop();
      editor.destroy();
    };
  }, [shown, label, language, labels]);

  useEffect(() => {
    if (marks && marks !== drawn.current) view.current?.dispatch({ effects: setMarks.of(marks) });
    drawn.current = marks;
  }, [marks]);

  useEffect(() => {
    const editor = view.current;
    if (!editor || line === null) return;
    // A new editor is on the page by then, and those of the other panes are.
    queueMicrotask(() => queueMicrotask(() => revealLine(editor, line)));
    // It guesses heights until it has measured itself, and then moves once more.
    return afterFrames(3, () => revealLine(editor, line));
  }, [shown, line, revealed]);

  return (
    <div class="code-holder">
      {searching ? (
        <FindBar label={label} editor={() => view.current} onClose={() => setSearching(false)} />
      ) : (
        <button type="button" class="small find-opener" aria-label={`Find in ${label}`} title="Ctrl F in the pane" onClick={() => setSearching(true)}>
          Find
        </button>
      )}
      <div class="code" ref={parent} />
    </div>
  );
}

function afterFrames(frames: number, act: () => void): () => void {
  let asked = 0;
  const wait = (left: number): void => {
    asked = window.requestAnimationFrame(() => (left > 1 ? wait(left - 1) : act()));
  };
  wait(frames);
  return () => window.cancelAnimationFrame(asked);
}

/** A click chooses a line; in a focused pane the arrow keys do. */
function chooser(choose: (line: number) => void) {
  let current = 0;
  const take = (view: EditorView, line: number): void => {
    current = Math.min(Math.max(line, 1), view.state.doc.lines);
    choose(current);
  };
  return EditorView.domEventHandlers({
    click(event, view) {
      if (!view.state.selection.main.empty) return;
      const place = view.posAtCoords({ x: event.clientX, y: event.clientY }, false);
      take(view, view.state.doc.lineAt(place).number);
    },
    keydown(event, view) {
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return false;
      take(view, (current || firstVisibleLine(view) - step) + step);
      revealLine(view, current);
      event.preventDefault();
      return true;
    },
  });
}

function firstVisibleLine(view: EditorView): number {
  const block = view.lineBlockAtHeight(view.scrollDOM.scrollTop);
  return view.state.doc.lineAt(block.from).number;
}
