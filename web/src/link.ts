/** Links the panes of a graph: which lines of which pane each operation is on. */

import type { GraphSources, LinkedPanes, Operation, Pane, SourceKernel, SourceText } from "./contract";
import { type FxNode, readFxGraph } from "./fx";

type Lines = Map<string, number[]>;

/** The lines of one thing, by pane. */
export interface PaneLines {
  get(pane: string): number[] | undefined;
}

export interface LinkedOperation extends Omit<Operation, "lines" | "leads"> {
  lines: PaneLines;
  leads: PaneLines;
}

export interface LinkedGraph extends Omit<LinkedPanes, "operations"> {
  operations: LinkedOperation[];
}

/** A pane, and the lines of each thing in it. */
class Laid {
  private known: Lines | null = null;

  constructor(
    readonly text: string,
    readonly language: string,
    private readonly place: () => Lines,
    public numbers: (number | null)[] | null = null,
  ) {}

  /** Found when someone asks: most panes are not shown. */
  get places(): Lines {
    return (this.known ??= this.place());
  }
}

/** `graphs`: by pane, the graphs of torch.fx as they were recorded. */
export function linkPanes(sources: GraphSources, graphs: Map<string, unknown>): LinkedGraph {
  const read = (pane: string): FxNode[] => readFxGraph(graphs.get(pane), sources.library_files) ?? [];
  const [captured, aot, final] = [read("dynamo"), read("aot"), read("post-grad")];
  const panes = new Map<string, Laid>([
    ["python", layProgram([...captured, ...final])],
    ["dynamo", layGraph(captured)],
    ["aot", layGraph(aot)],
    ["post-grad", layGraph(final)],
    ...[...sources.texts].map(([name, text]): [string, Laid] => [name, layText(text)]),
  ]);
  numberWrapper(panes.get("wrapper"), sources.wrapper_line);
  const linker = new Linker(sources, panes);
  return {
    panes: [...sources.titles].map(([id, title]) => shownPane(id, title, panes.get(id), sources.missing)),
    operations: final.filter((node) => node.calls).map((node) => linker.operation(node)),
    kernels: sources.kernels,
  };
}

function shownPane(id: string, title: string, laid: Laid | undefined, missing: Map<string, string>): Pane {
  const { text, language, numbers } = laid ?? NOTHING;
  const why = missing.get(id) ?? "Nothing was recorded here.";
  return { id, title, language, text, numbers, missing: text ? "" : why };
}

const NOTHING = new Laid("", "", () => new Map());

function put(lines: Lines, key: string, line: number): void {
  const known = lines.get(key);
  if (known) known.push(line);
  else lines.set(key, [line]);
}

function layGraph(nodes: FxNode[]): Laid {
  const text = nodes.map((node) => node.shown).join("\n");
  return new Laid(text, "fx", () => {
    const places: Lines = new Map();
    let line = 0;
    for (const { name, shown } of nodes) {
      for (const _ of shown.split("\n")) put(places, name, (line += 1));
    }
    return places;
  });
}

const keyOfPlace = (file: string, line: number): string => `${line} ${file}`;

/** The lines of the program that graphs were made from, file by file. */
function layProgram(nodes: FxNode[]): Laid {
  const files = new Map<string, Map<number, string>>();
  for (const { place, calls } of nodes) {
    if (!place || !calls) continue;
    files.set(place.file, (files.get(place.file) ?? new Map<number, string>()).set(place.line, place.code));
  }
  const places: Lines = new Map();
  const lines: string[] = [];
  const numbers: (number | null)[] = [];
  for (const [file, codes] of files) {
    lines.push(`# ${file}`);
    numbers.push(null);
    for (const [line, code] of [...codes].sort(([left], [right]) => left - right)) {
      put(places, keyOfPlace(file, line), lines.push(code));
      numbers.push(line);
    }
  }
  return new Laid(lines.join("\n"), "python", () => places, numbers.length ? numbers : null);
}

/** The key of lines that belong to nothing. */
const OF_NOTHING = "-";

function layText(source: SourceText): Laid {
  const { text, language, keys } = source;
  return new Laid(text, language, () => {
    const places: Lines = new Map();
    let line = 0;
    source.counts.forEach((count, block) => {
      const key = keys[block] ?? OF_NOTHING;
      for (let within = 0; within < count; within += 1) {
        line += 1;
        if (key !== OF_NOTHING) put(places, key, line);
      }
    });
    return places;
  });
}

function numberWrapper(wrapper: Laid | undefined, first: number): void {
  if (wrapper?.text) wrapper.numbers = wrapper.text.split("\n").map((_, at) => first + at);
}

const KERNEL = "kernel";
const WRAPPER = "wrapper";
const LOOP_BODY = "loop-body";
/** Panes with lines that an operation only led to. */
const LEADING = new Set(["scheduler", "fused", WRAPPER, KERNEL]);

/** What is looked up for every operation, collected once. */
class Linker {
  private readonly leavesOf: Map<string, string[]> = new Map();
  private readonly ledTo: Map<string, string[]> = new Map();
  private readonly kernelsOf: Map<string, number[]> = new Map();
  private readonly callLines: number[][];
  private readonly bodyless: Set<string>;
  private readonly namedSteps: Map<string, Lines> = new Map();

  constructor(
    private readonly sources: GraphSources,
    private readonly panes: Map<string, Laid>,
  ) {
    this.bodyless = new Set(sources.bodyless);
    for (const [leaf, origins] of sources.origins) {
      const computed = new Set(sources.computed.get(leaf));
      for (const name of computed) append(this.leavesOf, name, leaf);
      for (const name of new Set(origins)) if (!computed.has(name)) append(this.ledTo, name, leaf);
    }
    sources.called.forEach((kernel, place) => {
      for (const node of kernel.nodes) append(this.kernelsOf, node, place);
    });
    this.callLines = callLines(sources);
  }

  operation(node: FxNode): LinkedOperation {
    return {
      name: node.name,
      label: node.target,
      module: node.module,
      no_code: this.sources.no_code.get(node.name) ?? "",
      lines: new FoundLines((pane) => this.linesIn(pane, node)),
      leads: new FoundLines((pane) => this.leadsIn(pane, node)),
    };
  }

  private linesIn(pane: string, node: FxNode): number[] {
    const leaves = this.leavesOf.get(node.name) ?? [];
    switch (pane) {
      case "python":
        return node.place ? this.inPane(pane, [keyOfPlace(node.place.file, node.place.line)]) : [];
      case "dynamo":
        return this.inPane(pane, node.origins);
      case "aot":
        return this.inPane(pane, this.panes.get(pane)?.places.has(node.name) ? [node.name] : node.origins);
      case "post-grad":
      case "ir":
        return this.inPane(pane, [node.name]);
      case "scheduler":
      case "fused":
        return this.inPane(pane, leaves);
      case WRAPPER:
        return this.callsOf(this.kernels(leaves));
      case LOOP_BODY:
        return leaves.flatMap((leaf) => this.steps(leaf, node.name).flatMap((name) => this.bodyLines(leaf, name)));
      case KERNEL:
        return this.kernelLines(node.name, leaves);
      default:
        return [];
    }
  }

  /** Lines that do not compute it: they are what it led to. */
  private leadsIn(pane: string, node: FxNode): number[] {
    if (!LEADING.has(pane)) return [];
    const ledTo = this.ledTo.get(node.name) ?? [];
    if (pane === "scheduler" || pane === "fused") return this.inPane(pane, ledTo);
    const own = this.kernels(this.leavesOf.get(node.name) ?? []);
    const others = this.kernels(ledTo).filter((place) => !own.includes(place));
    if (pane === WRAPPER) return this.callsOf(others);
    return others.flatMap((place) => (this.sources.called[place]!.library ? this.wholeLines(place) : []));
  }

  private inPane(pane: string, keys: string[]): number[] {
    const places = this.panes.get(pane)?.places;
    return places ? keys.flatMap((key) => places.get(key) ?? []) : [];
  }

  private kernels(leaves: string[]): number[] {
    return [...new Set(leaves.flatMap((leaf) => this.kernelsOf.get(leaf) ?? []))];
  }

  private callsOf(kernels: number[]): number[] {
    return kernels.flatMap((place) => this.callLines[place] ?? []);
  }

  private steps(leaf: string, operation: string): string[] {
    return this.sources.steps.get(leaf)?.get(operation) ?? [];
  }

  /** The lines of a loop body that give this name. */
  private bodyLines(leaf: string, name: string): number[] {
    let named = this.namedSteps.get(leaf);
    if (!named) {
      const pane = this.panes.get(LOOP_BODY) ?? NOTHING;
      named = nameSteps(textLines(pane), pane.places.get(leaf) ?? []);
      this.namedSteps.set(leaf, named);
    }
    return named.get(name) ?? [];
  }

  private kernelLines(operation: string, leaves: string[]): number[] {
    const found: number[] = [];
    for (const place of this.kernels(leaves)) {
      const kernel = this.sources.called[place]!;
      for (const leaf of leaves) this.writtenFor(kernel, leaf, operation, found);
      if (this.isWhole(kernel, leaves)) found.push(...this.wholeLines(place));
    }
    return found;
  }

  /** Lines of a kernel that were written for lines of a loop body. */
  private writtenFor(kernel: SourceKernel, leaf: string, operation: string, found: number[]): void {
    const numbered = kernel.numbered.get(leaf);
    // Of lines that are not in the body, nothing is known.
    const steps = numbered ? this.steps(leaf, operation).filter((name) => this.bodyLines(leaf, name).length) : [];
    for (const name of steps) {
      for (const number of numbered!.get(name) ?? []) {
        for (const text of kernel.texts) {
          const shown = this.sources.kernels[text];
          const line = (shown?.first_line ?? 0) + number;
          if (shown && line > shown.first_line && line <= shown.last_line) found.push(line);
        }
      }
    }
  }

  /** Whether a kernel is a library call, or a template, for one of these nodes. */
  private isWhole(kernel: SourceKernel, leaves: string[]): boolean {
    return kernel.library || leaves.some((leaf) => this.bodyless.has(leaf) && kernel.nodes.includes(leaf));
  }

  /** All of a kernel that was not written for the lines of loop bodies. */
  private wholeLines(place: number): number[] {
    const kernel = this.sources.called[place]!;
    const ofLoops = new Set([...kernel.numbered.values()].flatMap((steps) => [...steps.values()].flat()));
    return kernel.own.flatMap((text) => {
      const { first_line: first, last_line: last } = this.sources.kernels[text] ?? { first_line: 1, last_line: 0 };
      const every = Array.from({ length: Math.max(last - first + 1, 0) }, (_, at) => first + at);
      return every.filter((line) => line === first || !ofLoops.has(line - first));
    });
  }
}

function append<Item>(lists: Map<string, Item[]>, key: string, item: Item): void {
  const known = lists.get(key);
  if (known) known.push(item);
  else lists.set(key, [item]);
}

/** For each kernel the lines that call it, or another one of the same scheduler nodes. */
function callLines({ called, calls }: GraphSources): number[][] {
  const byNodes: Map<string, number[]> = new Map();
  for (const { line, kernel } of calls) append(byNodes, (called[kernel]?.nodes ?? []).join(" "), line);
  return called.map(({ nodes }) => byNodes.get(nodes.join(" ")) ?? []);
}

/** Each line once, in order; found when a pane is first asked for. */
class FoundLines implements PaneLines {
  private readonly known: Lines = new Map();

  constructor(private readonly find: (pane: string) => number[]) {}

  get(pane: string): number[] {
    let lines = this.known.get(pane);
    if (!lines) {
      lines = [...new Set(this.find(pane))].sort((left, right) => left - right);
      this.known.set(pane, lines);
    }
    return lines;
  }
}

const splitTexts = new WeakMap<Laid, string[]>();

function textLines(pane: Laid): string[] {
  const known = splitTexts.get(pane) ?? pane.text.split("\n");
  splitTexts.set(pane, known);
  return known;
}

/** The lines of a loop body by the name that each gives, with its part of the body. */
function nameSteps(text: string[], places: number[]): Lines {
  const found: Lines = new Map();
  let part = "";
  for (const line of places) {
    const code = text[line - 1] ?? "";
    const begins = code.startsWith("def ") ? /^def (\w+)\(/.exec(code) : null;
    if (begins) part = begins[1] === "body" ? "" : `${begins[1]}.`;
    put(found, part + code.trim().split(" = ", 1)[0], line);
  }
  return found;
}
