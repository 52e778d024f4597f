/** Reading values of any type: a damaged recording may hold anything anywhere. */

export type Raw = Record<string, unknown>;

export function record(value: unknown): Raw {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Raw) : {};
}

export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A text; numbers and booleans are written out, everything else is nothing. */
export function text(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return "";
}

export function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function count(value: unknown): number {
  const read = number(value);
  return read !== null && read > 0 ? Math.floor(read) : 0;
}

export function texts(value: unknown): string[] {
  return list(value).map(text).filter((one) => one !== "");
}

/** Whole numbers from 1 on, as lines of a text are counted. */
export function lineNumbers(value: unknown): number[] {
  const read = typeof value === "number" ? [value] : list(value);
  return read.filter((line): line is number => Number.isInteger(line) && (line as number) > 0);
}

/** Index into a list, or null. */
export function position(value: unknown): number | null {
  return Number.isInteger(value) && (value as number) >= 0 ? (value as number) : null;
}

export function numbersByName(value: unknown): Map<string, number> {
  const found = new Map<string, number>();
  for (const [name, one] of Object.entries(record(value))) {
    const read = number(one);
    if (read !== null) found.set(name, read);
  }
  return found;
}
