/** Which lines of the panes belong together: pure functions of the chunk of one graph. */

import type { FormText, LinkedPanes } from "./chunks";
import type { PaneKernel } from "./contract";
import type { Marks } from "./editor";
import type { Route } from "./route";

export const COLOURS = 8;
export const NATIVE = "native";

export interface Selection {
  /** Positions in the list of operations. */
  operations: number[];
  /** The line that was chosen, if it was a line. */
  pane: string;
  line: number;
  kernel: string;
}

export function isNothing(selection: Selection): boolean {
  return selection.operations.length === 0 && !selection.line && !selection.kernel;
}

export function colourOf(operation: number): number {
  return operation % COLOURS;
}

/** For each pane, the operations of each line. */
export interface Lines {
  get(pane: string): Map<number, number[]>;
}

/** Of a pane when it is first asked for: most panes are not shown. */
export function indexLines(chunk: LinkedPanes): Lines {
  const known = new Map<string, Map<number, number[]>>();
  const get = (pane: string): Map<number, number[]> => {
    const lines = known.get(pane) ?? indexPane(chunk, pane);
    known.set(pane, lines);
    return lines;
  };
  return { get };
}

function indexPane(chunk: LinkedPanes, pane: string): Map<number, number[]> {
  const found = new Map<number, number[]>();
  chunk.operations.forEach((operation, place) => {
    for (const line of operation.lines.get(pane) ?? []) {
      const there = found.get(line);
      if (there) there.push(place);
      else found.set(line, [place]);
    }
  });
  return found;
}

/** The selection that an address stands for. */
export function readSelection(route: Route, chunk: LinkedPanes, lines: Lines, form: FormText | null): Selection {
  const pane = route.get("pane");
  const line = route.position("line") ?? 0;
  const kernel = route.get("kernel");
  const names = new Set(route.all("op"));
  const module = route.get("module");
  return { operations: selected(), pane, line, kernel };

  function selected(): number[] {
    if (pane === NATIVE && line) return operationsOfForm(chunk, lines, form, kernel, line);
    if (pane && line) return lines.get(pane).get(line) ?? [];
    if (names.size) return positions((operation) => names.has(operation.name));
    if (module) return positions((operation) => isPartOf(operation.module, module));
    const found = kernelById(chunk, kernel);
    return found ? operationsOfKernel(chunk, found) : [];
  }

  function positions(wanted: (operation: LinkedPanes["operations"][number]) => boolean): number[] {
    return chunk.operations.flatMap((operation, place) => (wanted(operation) ? [place] : []));
  }
}

/** A path names a module and all its parts: h.0 has h.0.attn, and not h.01. */
function isPartOf(path: string, module: string): boolean {
  return path === module || path.startsWith(`${module}.`);
}

/** Two library calls may have the same name; then only the id says which is meant. */
export function kernelById(chunk: LinkedPanes, id: string): PaneKernel | null {
  const exact = chunk.kernels.find((one) => one.id === id);
  const named = chunk.kernels.filter((one) => one.name === id);
  return exact ?? (named.length === 1 ? named[0]! : null);
}

export function operationsOfKernel(chunk: LinkedPanes, kernel: PaneKernel): number[] {
  return chunk.operations.flatMap((operation, place) => {
    const lines = operation.lines.get("kernel") ?? [];
    return lines.some((line) => line >= kernel.first_line && line <= kernel.last_line) ? [place] : [];
  });
}

function operationsOfForm(
  chunk: LinkedPanes,
  lines: Lines,
  form: FormText | null,
  name: string,
  line: number,
): number[] {
  const kernel = kernelById(chunk, name) ?? chunk.kernels[0];
  const found = new Set<number>();
  if (!kernel || !form) return [];
  for (const source of sourcesOf(form, line)) {
    for (const operation of lines.get("kernel").get(kernel.first_line + source - 1) ?? []) found.add(operation);
  }
  return [...found];
}

function sourcesOf(form: FormText, line: number): number[] {
  return [...form.links].filter(([, lines]) => lines.includes(line)).map(([source]) => source);
}

/** The kernel whose native forms are shown: the one asked for, or one that the selection is in. */
export function kernelOf(chunk: LinkedPanes, selection: Selection, operations: number[]): PaneKernel | null {
  const named = kernelById(chunk, selection.kernel);
  if (named) return named;
  const lines = operations.flatMap((place) => chunk.operations[place]?.lines.get("kernel") ?? []);
  const touched = chunk.kernels.find((one) => lines.some((line) => line >= one.first_line && line <= one.last_line));
  return touched ?? chunk.kernels.find((one) => one.forms.length > 0) ?? chunk.kernels[0] ?? null;
}

/** Lines that chosen operations merely led to: their results are read there, or seen as a view. */
function leadLines(chunk: LinkedPanes, pane: string, selection: Selection): number[] {
  return selection.operations.flatMap((place) => chunk.operations[place]?.leads.get(pane) ?? []);
}

interface Marked {
  chunk: LinkedPanes;
  lines: Lines;
  selection: Selection;
  kernel: PaneKernel | null;
}

/** Classes of the lines of one pane. */
export function markPane(pane: string, { chunk, lines, selection, kernel }: Marked): Marks {
  const marks: Marks = new Map();
  const chosen = new Set(selection.operations);
  const quiet = !isNothing(selection);
  for (const [line, operations] of lines.get(pane)) {
    const hit = operations.find((operation) => chosen.has(operation));
    if (hit !== undefined) marks.set(line, `mark mark-${colourOf(hit)}`);
    else marks.set(line, `${quiet ? "bar" : "tint"} tint-${colourOf(operations[0]!)}`);
  }
  for (const line of leadLines(chunk, pane, selection)) {
    if (!marks.get(line)?.startsWith("mark")) marks.set(line, `${marks.get(line) ?? ""} led-to`);
  }
  if (pane === "kernel" && selection.kernel && kernel) frameKernel(marks, kernel);
  if (pane === selection.pane && selection.line) {
    marks.set(selection.line, `${marks.get(selection.line) ?? "mark"} chosen`);
  }
  return marks;
}

function frameKernel(marks: Marks, kernel: PaneKernel): void {
  for (let line = Math.max(kernel.first_line, 1); line <= Math.min(kernel.last_line, kernel.first_line + 20_000); line += 1) {
    marks.set(line, `${marks.get(line) ?? ""} in-kernel`);
  }
}

/** Classes of the lines of a native form, by way of the lines of its kernel. */
export function markForm(form: FormText, kernel: PaneKernel, lines: Lines, selection: Selection): Marks {
  const marks: Marks = new Map();
  const chosen = new Set(selection.operations);
  const quiet = !isNothing(selection);
  for (const [source, targets] of form.links) {
    const operations = lines.get("kernel").get(kernel.first_line + source - 1) ?? [];
    const hit = operations.find((operation) => chosen.has(operation));
    for (const line of targets) {
      if (hit !== undefined) marks.set(line, `mark mark-${colourOf(hit)}`);
      else if (!marks.get(line)?.startsWith("mark")) {
        marks.set(line, `${quiet ? "bar" : "tint"} tint-${colourOf(operations[0] ?? source)}`);
      }
    }
  }
  if (selection.pane === NATIVE && selection.line) {
    marks.set(selection.line, `${marks.get(selection.line) ?? "mark"} chosen`);
  }
  return marks;
}

/** Where a pane has to scroll to: its first marked line, or else the first that was led to. */
export function firstMarked(marks: Marks): number | null {
  return firstWith(marks, /\bmark\b/) ?? firstWith(marks, /\bled-to\b/);
}

function firstWith(marks: Marks, pattern: RegExp): number | null {
  let first: number | null = null;
  for (const [line, classes] of marks) {
    if (pattern.test(classes) && (first === null || line < first)) first = line;
  }
  return first;
}
