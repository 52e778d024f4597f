/** The read-only editor that every code pane is made of. */

import { Compartment, EditorState, type Extension, RangeSetBuilder, StateEffect, StateField, Text } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, WidgetType, drawSelection, lineNumbers } from "@codemirror/view";
import { languageOf } from "./languages";
import { copyText } from "./parts";
import { amount, shownLine, splitLines } from "./text";

/** Line number (from 1) to the classes that it is drawn with. */
export type Marks = Map<number, string>;

export const setMarks = StateEffect.define<Marks>();

const marked = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(decorations, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(setMarks)) return markLines(transaction.state.doc, effect.value);
    }
    return decorations.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

const lineDecorations = new Map<string, Decoration>();

function lineDecoration(classes: string): Decoration {
  let known = lineDecorations.get(classes);
  if (!known) {
    known = Decoration.line({ class: classes });
    lineDecorations.set(classes, known);
  }
  return known;
}

function markLines(document: Text, marks: Marks): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  for (const line of [...marks.keys()].sort((left, right) => left - right)) {
    if (line > document.lines) break;
    const { from } = document.line(line);
    builder.add(from, from, lineDecoration(marks.get(line)!));
  }
  return builder.finish();
}

/** Stands at the end of a line that is too long to be shown. */
class CutLine extends WidgetType {
  constructor(
    private readonly whole: string,
    private readonly hidden: number,
  ) {
    super();
  }

  override eq(other: CutLine): boolean {
    return other.whole === this.whole;
  }

  toDOM(): HTMLElement {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "cut-line small";
    button.textContent = `${amount(this.hidden)} more characters: copy the whole line`;
    button.addEventListener("click", () => void copyText(this.whole));
    return button;
  }
}

export interface Shown {
  document: Text;
  /** Notes at the ends of lines that were cut. */
  cuts: Extension;
}

export function showText(text: string): Shown {
  const whole = splitLines(text);
  const shown = whole.map(shownLine);
  const document = Text.of(shown.map((line) => line.text));
  const builder = new RangeSetBuilder<Decoration>();
  shown.forEach((line, place) => {
    if (line.hidden === 0) return;
    const { to } = document.line(place + 1);
    builder.add(to, to, Decoration.widget({ widget: new CutLine(whole[place]!, line.hidden), side: 1 }));
  });
  return { document, cuts: EditorView.decorations.of(builder.finish()) };
}

export interface EditorOptions {
  label: string;
  labels: string[] | null;
}

/** Colours come after the text has been painted: they take longer than all the rest. */
const colours = new Compartment();

export function addColours(view: EditorView, language: string): void {
  view.dispatch({ effects: colours.reconfigure(languageOf(language)) });
}

function readOnly(options: EditorOptions): Extension {
  const { labels } = options;
  return [
    EditorState.readOnly.of(true),
    EditorView.editable.of(false),
    EditorView.contentAttributes.of({ tabindex: "0", "aria-label": options.label, "aria-readonly": "true" }),
    lineNumbers({ formatNumber: (line) => (labels ? (labels[line - 1] ?? "") : String(line)) }),
    drawSelection(),
    colours.of([]),
    look,
  ];
}

export function paneState(shown: Shown, options: EditorOptions, marks: Marks, extra: Extension): EditorState {
  const decorated = marked.init(({ doc }) => markLines(doc, marks));
  return EditorState.create({ doc: shown.document, extensions: [readOnly(options), decorated, shown.cuts, extra] });
}

/** Scroll without moving anything around the editor. */
export function revealLine(view: EditorView, line: number): void {
  if (line < 1 || line > view.state.doc.lines) return;
  const block = view.lineBlockAt(view.state.doc.line(line).from);
  const height = view.scrollDOM.clientHeight;
  const top = view.scrollDOM.scrollTop;
  if (block.top >= top + block.height && block.bottom <= top + height - block.height) return;
  view.scrollDOM.scrollTop = Math.max(0, block.top - height / 3);
}

const look = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "transparent", fontSize: "12px" },
  "&:focus-within, &.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "18px", overflow: "auto" },
  ".cm-content": { padding: "4px 0", caretColor: "transparent" },
  ".cm-line": { padding: "0 8px 0 6px" },
  ".cm-gutters": {
    backgroundColor: "var(--panel)",
    color: "var(--faint)",
    borderRight: "1px solid var(--line)",
    minWidth: "34px",
  },
  ".cm-lineNumbers .cm-gutterElement": { padding: "0 6px 0 4px" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    backgroundColor: "var(--selection)",
  },
});
