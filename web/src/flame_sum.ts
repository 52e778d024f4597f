/** Spans of the timeline added up: the same stage in the same place is one frame, however often it ran. */

import type { Span, Timeline } from "./contract";

export interface Frame {
  name: string;
  stage: string;
  seconds: number;
  count: number;
  /** A graph, if all of it is of that one. */
  graph: number | null;
  inner: Frame[];
}

/** One tree for the program's own threads, one for compilers that ran beside them. */
export function addUp(timeline: Timeline, isId: (word: string) => boolean): Frame[] {
  const roots = new Map<string, Frame>();
  const byLane = new Map<number, Span[]>();
  for (const span of timeline.spans) byLane.set(span.lane, [...(byLane.get(span.lane) ?? []), span]);
  for (const [number, spans] of byLane) {
    const beside = timeline.lanes[number]?.kind === "compiler";
    const title = beside ? "compilers, side by side" : "the program's threads";
    const root = roots.get(title) ?? frame(title, "", null);
    roots.set(title, root);
    addLane(root, spans, isId);
  }
  return [...roots.values()].map(settle);
}

function frame(name: string, stage: string, graph: number | null): Frame {
  return { name, stage, seconds: 0, count: 0, graph, inner: [] };
}

function addLane(root: Frame, spans: Span[], isId: (word: string) => boolean): void {
  const open: { frame: Frame; end: number }[] = [];
  for (const span of [...spans].sort((left, right) => left.start - right.start || left.depth - right.depth)) {
    while (open.length > span.depth || (open.length && open[open.length - 1]!.end <= span.start && span.depth < open.length)) open.pop();
    const above = open[open.length - 1]?.frame ?? root;
    const name = nameOf(span, isId);
    let found = above.inner.find((one) => one.name === name);
    if (!found) above.inner.push((found = frame(name, span.stage, span.graph)));
    if (found.graph !== span.graph) found.graph = null;
    found.seconds += span.seconds;
    found.count += 1;
    open.push({ frame: found, end: span.start + span.seconds });
  }
}

/** A stage is named alone: which graph it was for is added up. Passes and kernels have names of their own. */
function nameOf(span: Span, isId: (word: string) => boolean): string {
  const [first = ""] = span.label.split(" ");
  return !span.label || isId(first) ? span.stage : span.label;
}

function settle(root: Frame): Frame {
  root.inner.sort((left, right) => right.seconds - left.seconds).forEach(settle);
  if (!root.seconds) root.seconds = root.inner.reduce((sum, one) => sum + one.seconds, 0);
  return root;
}
