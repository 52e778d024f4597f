/** Graphs of torch.fx as they were recorded, which a stranger may have done. */

import { list, record, text } from "./values";

export interface Place {
  file: string;
  line: number;
  code: string;
}

export interface FxNode {
  name: string;
  target: string;
  /** Whether it computes something. */
  calls: boolean;
  origins: string[];
  /** The line of the program. */
  place: Place | null;
  /** The path of the innermost module. */
  module: string;
  /** The node in a line, as a person reads it. */
  shown: string;
}

const CALLS = new Set(["call_function", "call_method", "call_module"]);

/** The nodes of a graph; null where it is missing or damaged. */
export function readFxGraph(raw: unknown, libraryFiles: string[]): FxNode[] | null {
  const data = record(raw);
  if (!Array.isArray(data.nodes)) return null;
  const places = list((stack) => placeOf(text(stack), libraryFiles))(data.stacks);
  const modules = list(innermostModule)(data.modules);
  return data.nodes.map(record).map((node) => ({
    name: text(node.name),
    target: text(node.target),
    calls: CALLS.has(text(node.op)),
    origins: list(text)(node.from),
    place: places[node.stack as number] ?? null,
    module: modules[node.modules as number] ?? "",
    shown: nodeText(node),
  }));
}

/** The text of a graph, one node in a line. */
export function graphText(raw: unknown): string {
  const nodes = readFxGraph(raw, []);
  return nodes ? nodes.map((node) => node.shown).join("\n") : "(the graph is missing from the recording)";
}

function nodeText(node: Record<string, unknown>): string {
  const name = text(node.name);
  const args = text(node.args).replace(/^\(/, "");
  const value = describeValue(node.value);
  if (node.op === "placeholder") return value ? `%${name}: ${value}` : `%${name}`;
  if (node.op === "output") return `return ${withoutEnd(args)}`;
  const keywords = text(node.kwargs);
  const call = `%${name} = ${text(node.target)}(${withoutEnd(args)}${keywords ? `, **${keywords}` : ""})`;
  return value ? `${call}  # ${value}` : call;
}

function withoutEnd(args: string): string {
  return args.replace(/\)$/, "").replace(/,$/, "");
}

/** The shape and type of a value, as torch users write them: f32[10, 100]. */
function describeValue(raw: unknown): string {
  if (Array.isArray(raw)) return raw.map(describeValue).join(", ");
  const value = record(raw);
  if (!("dtype" in value)) return text(value.text);
  const kind = text(value.dtype).replace(/^torch\./, "");
  const device = text(value.device);
  return `${kind}[${list(text)(value.shape).join(", ")}]${device && device !== "cpu" ? ` ${device}` : ""}`;
}

// --- lines of the program ------------------------------------------------------------------------

const FRAME = /File "([^"]*)", line (\d{1,9}), in [^\n]*\n?([^\n]*)/g;
const NOT_THE_PROGRAMS = [
  /\/(?:site|dist)-packages\//,
  /\/lib(?:64)?\/python3[\d.]*t?\/|\/[Pp]ython3?[\d.]+\/[Ll]ib\//,
  /(?:^|\/)torch\/(?:_\w|(?:ao|autograd|compiler|cuda|distributed|export|fx|jit|library|nn|optim|overrides|utils)(?:\/|\.py$))/,
  /\/torchinductor_[^/]+\/|\/[a-z0-9]{2}\/c[a-z0-9]{40,}\.(?:py|main\.cpp|cpp)$|\/c[a-z2-7]{50,52}\.py$/,
  /\/(?:src|site-packages|dist-packages)\/inductoscope\//,
];

/** The innermost frame in the user's code, or else the innermost. */
function placeOf(stack: string, libraryFiles: string[]): Place | null {
  const frames = [...stack.matchAll(FRAME)].map(([, file, line, code]) => ({
    file: file!,
    line: Number(line),
    code: code!.trim(),
  }));
  return frames.filter((frame) => isUsers(frame.file, libraryFiles)).pop() ?? frames.pop() ?? null;
}

function isUsers(file: string, libraryFiles: string[]): boolean {
  const place = file.replaceAll("\\", "/");
  if (!place || place.startsWith("<") || libraryFiles.some((folder) => place.startsWith(folder))) return false;
  return !NOT_THE_PROGRAMS.some((pattern) => pattern.test(place));
}

// --- modules -------------------------------------------------------------------------------------

/** The variable that holds the outermost module: L['self'] is a local, G['model'] a global. */
const ROOT = /^(?:getattr\()*[LG]\['[^']*'\]/;
/** A name below it: .h, ['h'], [0], or the second argument of a getattr. */
const NAME = /\.(\w+)|\['([^']+)'\]|\[(\d+)\]|, '([^']+)'\)/g;

function innermostModule(raw: unknown): string {
  const pairs = list((pair) => pair)(raw).filter((pair): pair is unknown[] => Array.isArray(pair) && pair.length === 2);
  const path = text(pairs.pop()?.[0]);
  const root = ROOT.exec(path);
  const names = [...(root ? path.slice(root[0].length) : `.${path}`).matchAll(NAME)];
  return names
    .map((found) => found.slice(1).join(""))
    .filter((name) => name !== "_modules")
    .join(".");
}
