/** How values become text for people: nothing that a recording holds may disturb the page. */

/** Lines longer than this are cut on screen; the whole text stays to be copied. */
export const LINE_LIMIT = 2000;

// Control characters, lone surrogates, and the characters that turn the direction of what follows.
const UNPRINTABLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

// Written as escapes: the pictures that Unicode has for control characters are in few fonts.
function escaped(character: string): string {
  const code = character.charCodeAt(0).toString(16);
  return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
}

/** The text with everything that has no glyph of its own written out. */
export function visible(value: string): string {
  return value.replace(UNPRINTABLE, escaped);
}

/** For a cell, a title, a list: one line, printable, of bounded length. */
export function brief(value: string, limit = 300): string {
  const shown = value.length > limit ? `${value.slice(0, limit)}…` : value;
  return visible(shown.replace(/\s*\n\s*/g, " ⏎ ").replace(/\t/g, " "));
}

/** For a paragraph: line breaks stay, length is bounded. */
export function paragraph(value: string, limit = 20_000): string {
  if (value.length <= limit) return visible(value);
  return `${visible(value.slice(0, limit))}… (${amount(value.length - limit)} more characters)`;
}

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });

export function amount(value: number): string {
  return WHOLE.format(value);
}

export function decimal(value: number | null): string {
  if (value === null) return "";
  return Math.abs(value) >= 1000 ? WHOLE.format(value) : SHORT.format(value);
}

export function plural(value: number, singular: string, several = `${singular}s`): string {
  return `${amount(value)} ${value === 1 ? singular : several}`;
}

export function duration(seconds: number | null): string {
  if (seconds === null) return "";
  const size = Math.abs(seconds);
  if (size >= 120) return `${WHOLE.format(Math.floor(seconds / 60))} min ${Math.round(seconds % 60)} s`;
  if (size >= 1 || size === 0) return `${SHORT.format(seconds)} s`;
  if (size >= 1e-3) return `${SHORT.format(seconds * 1e3)} ms`;
  if (size >= 1e-6) return `${SHORT.format(seconds * 1e6)} µs`;
  return `${SHORT.format(seconds * 1e9)} ns`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null): string {
  if (value === null) return "";
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < BYTE_UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${SHORT.format(size)} ${BYTE_UNITS[unit]}`;
}

/** Lines as the recording counts them: separated by line feeds and nothing else. */
export function splitLines(value: string): string[] {
  const lines = value.split("\n");
  if (lines.length > 1 && lines[lines.length - 1] === "") lines.pop();
  return lines;
}

export interface ShownLine {
  text: string;
  /** Characters that are not shown. */
  hidden: number;
}

export function shownLine(line: string): ShownLine {
  const plain = line.endsWith("\r") ? line.slice(0, -1) : line;
  if (plain.length <= LINE_LIMIT) return { text: visible(plain), hidden: 0 };
  return { text: visible(plain.slice(0, LINE_LIMIT)), hidden: plain.length - LINE_LIMIT };
}
