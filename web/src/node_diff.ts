/** What a pass did to a graph, node by node: a text that moves is not a change of its neighbours. */

import type { Marks } from "./editor";
import { plural, splitLines } from "./text";

export interface NodeDiff {
  /** After the pass, with what it removed; long stretches that are the same are left out. */
  text: string;
  marks: Marks;
  removed: number;
  added: number;
  changed: number;
  moved: number;
}

interface Row {
  text: string;
  kind: "same" | "removed" | "added" | "moved";
}

// Lines of context around a change.
const MARGIN = 3;

export function diffNodes(before: string, after: string): NodeDiff {
  const old = namedLines(before);
  const now = namedLines(after);
  const known = new Map(old.map(({ name, text }) => [name, text]));
  const left = new Set(now.map(({ name }) => name));
  const order = stayed(old, now);
  const count = { removed: 0, added: 0, changed: 0, moved: 0 };
  const rows: Row[] = [];
  let place = 0;
  for (const { name, text } of now) {
    if (order.has(name)) place = removals(old, place, name, left, rows, count);
    const earlier = known.get(name);
    if (earlier === undefined) {
      count.added += 1;
      rows.push({ text, kind: "added" });
    } else if (earlier !== text) {
      count.changed += 1;
      rows.push({ text: earlier, kind: "removed" }, { text, kind: "added" });
    } else if (order.has(name)) rows.push({ text, kind: "same" });
    else {
      count.moved += 1;
      rows.push({ text, kind: "moved" });
    }
  }
  removals(old, place, null, left, rows, count);
  return { ...fold(rows), ...count };
}

/** Nodes that are gone, up to the node that is called `name`. */
function removals(
  old: NamedLine[],
  start: number,
  name: string | null,
  left: Set<string>,
  rows: Row[],
  count: { removed: number },
): number {
  let place = start;
  for (; place < old.length; place += 1) {
    const line = old[place]!;
    if (line.name === name) return place + 1;
    if (left.has(line.name)) continue;
    count.removed += 1;
    rows.push({ text: line.text, kind: "removed" });
  }
  return place;
}

interface NamedLine {
  /** The name that a line gives to a node; what a graph returns has one name, any other line is its own. */
  name: string;
  text: string;
}

function namedLines(graph: string): NamedLine[] {
  return splitLines(graph).map((text) => {
    const name = /^\s*(%?[\w.]+)\s*(?::[^=]*)?=/.exec(text)?.[1] ?? /^\s*return\b/.exec(text)?.[0] ?? text;
    return { name, text };
  });
}

/** The nodes whose order is the same before and after: the longest increasing run of places. */
function stayed(old: NamedLine[], now: NamedLine[]): Set<string> {
  const places = new Map(old.map(({ name }, place) => [name, place]));
  const common = now.map(({ name }) => name).filter((name) => places.has(name));
  const tails: number[] = [];
  const previous: number[] = [];
  const value = (at: number): number => places.get(common[at]!)!;
  common.forEach((_, at) => {
    let low = 0;
    let high = tails.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (value(tails[middle]!) < value(at)) low = middle + 1;
      else high = middle;
    }
    previous[at] = low > 0 ? tails[low - 1]! : -1;
    tails[low] = at;
  });
  const found = new Set<string>();
  for (let at = tails[tails.length - 1] ?? -1; at >= 0; at = previous[at]!) found.add(common[at]!);
  return found;
}

const SIGNS = { same: "  ", removed: "- ", added: "+ ", moved: "~ " };

/** As a text; what is far from any change is counted and left out. */
function fold(rows: Row[]): { text: string; marks: Marks } {
  const near = new Set<number>();
  rows.forEach((row, at) => {
    if (row.kind === "same") return;
    for (let each = at - MARGIN; each <= at + MARGIN; each += 1) near.add(each);
  });
  const lines: string[] = [];
  const marks: Marks = new Map();
  let hidden = 0;
  const flush = (): void => {
    if (hidden > 0) {
      lines.push(`… ${plural(hidden, "node")} unchanged`);
      marks.set(lines.length, "diff-folded");
    }
    hidden = 0;
  };
  rows.forEach((row, at) => {
    if (!near.has(at)) {
      hidden += 1;
      return;
    }
    flush();
    lines.push(SIGNS[row.kind] + row.text);
    if (row.kind !== "same") marks.set(lines.length, `diff-${row.kind}`);
  });
  flush();
  return { text: lines.join("\n"), marks };
}
