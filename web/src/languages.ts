/** Colours for the languages of the panes. */

import { cppLanguage } from "@codemirror/lang-cpp";
import { pythonLanguage } from "@codemirror/lang-python";
import { HighlightStyle, type Language, StreamLanguage, type StringStream, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { tags } from "@lezer/highlight";

/** PTX, SASS, AMDGCN, x86, LLVM and MLIR agree on enough to be coloured alike. */
const lowLevel = StreamLanguage.define<{ begun: boolean }>({
  name: "low-level",
  startState: () => ({ begun: false }),
  token(stream, state) {
    if (stream.sol()) state.begun = false;
    if (stream.eatSpace()) return null;
    const first = !state.begun;
    state.begun = true;
    return lowLevelToken(stream, first);
  },
});

function lowLevelToken(stream: StringStream, first: boolean): string | null {
  // A semicolon or hash begins a comment only where an instruction could begin.
  if (stream.match("//") || (first && stream.match(/^(?:;|#(?!\w))/))) {
    stream.skipToEnd();
    return "comment";
  }
  if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
  if (stream.match(/^[%$@!#][\w.$-]+/)) return "variableName";
  if (stream.match(/^[.$]?[\w.$]+:/)) return "labelName";
  if (stream.match(/^\.[\w.$]+/)) return "meta";
  if (stream.match(/^-?(?:0x[\da-f]+|\d[\d.]*(?:e[+-]?\d+)?)\b/i)) return "number";
  if (stream.match(/^(?:[a-z]\d+|bf16|tensor|vector|ptr|void|half|float|double|index)\b/)) return "typeName";
  if (stream.match(/^[A-Za-z_][\w.$]*/)) return first ? "keyword" : null;
  stream.next();
  return null;
}

const LANGUAGES: Record<string, Language> = {
  python: pythonLanguage,
  fx: pythonLanguage,
  ir: pythonLanguage,
  scheduler: pythonLanguage,
  loop: pythonLanguage,
  triton: pythonLanguage,
  cpp: cppLanguage,
  ptx: lowLevel,
  sass: lowLevel,
  asm: lowLevel,
  amdgcn: lowLevel,
  ttir: lowLevel,
  ttgir: lowLevel,
  llir: lowLevel,
};

const style = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.controlKeyword, tags.operatorKeyword], color: "var(--code-keyword)" },
  { tag: [tags.comment, tags.lineComment, tags.blockComment], color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.typeName, tags.className], color: "var(--code-type)" },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName), tags.labelName], color: "var(--code-function)" },
  { tag: [tags.meta, tags.processingInstruction], color: "var(--code-meta)" },
]);

export function hasLanguage(name: string): boolean {
  return Object.hasOwn(LANGUAGES, name);
}

export function languageOf(name: string): Extension {
  const language = hasLanguage(name) ? LANGUAGES[name] : undefined;
  return language ? [language, syntaxHighlighting(style)] : [];
}
