/** The data of the page: what is in the index, read once into values that are always of one type. */

import { type Raw, count, list, number, numbersByName, position, record, text, texts } from "./values";

export type Level = "error" | "warning" | "note";
export type Confidence = "proven" | "likely" | "unknown";

export interface Finding {
  rule: string;
  title: string;
  severity: Level;
  confidence: Confidence;
  text: string;
  place: string;
  advice: string;
}

export interface Reproducer {
  path: string;
  verified: boolean;
  failed: number | null;
  of: number | null;
  nodes: number | null;
  text: string;
}

export interface Workaround {
  text: string;
  verified: boolean;
  slowdown: number | null;
}

export interface Verdict {
  verdict: string;
  stage: string;
  summary: string;
  confidence: Confidence;
  culprit: [string, string][];
  evidence: { what: string; where: string }[];
  reproducer: Reproducer | null;
  workaround: Workaround | null;
  issue: string;
}

export interface Stage {
  name: string;
  seconds: number | null;
  explanation: string;
}

export interface CacheUse {
  cache: string;
  outcome: string;
  key: string;
  reason: string;
}

export interface Failure {
  stage: string;
  type: string;
  message: string;
  source: string;
  detail: string;
  traceback: string;
}

export interface Compile {
  id: string;
  process: string;
  function: string;
  place: string;
  outcome: string;
  reason: string;
  seconds: number | null;
  stages: Map<string, number>;
  graphs: number[];
  breaks: { reason: string; source: string }[];
  recompile: { reasons: string[]; limit: string } | null;
  guardCount: number | null;
  guards: string;
  caches: CacheUse[];
  errors: Failure[];
}

export interface Graph {
  index: number;
  key: string;
  compile: number | null;
  phase: string;
  cached: boolean;
  finished: boolean;
  seconds: Map<string, number>;
  operations: number;
  kernels: number;
  fusions: number;
  chunk: string;
  passes: string;
  schedule: string;
}

export interface KernelRow {
  name: string;
  language: string;
  graph: number | null;
  operations: string;
  lines: number | null;
  seconds: number | null;
  registers: number | null;
  spills: number | null;
  shared: number | null;
}

export interface Index {
  title: string;
  version: string;
  recording: string;
  live: boolean;
  finished: boolean;
  target: { name: string; note: string } | null;
  program: [string, string][];
  programSeconds: number | null;
  findings: Finding[];
  verdict: Verdict | null;
  notes: string[];
  stages: Stage[];
  compiles: Compile[];
  graphs: Graph[];
  kernels: KernelRow[];
  ledger: { chunk: string; fused: number; refused: number; never: number };
  autotune: { chunk: string; searches: number; choices: number };
  timeline: { chunk: string; spans: number };
}

export function readIndex(raw: unknown): Index {
  const index = record(raw);
  const program = record(index.program);
  const ledger = record(index.ledger);
  const autotune = record(index.autotune);
  const timeline = record(index.timeline);
  return {
    title: text(index.title),
    version: text(index.inductoscope),
    recording: text(index.recording),
    live: index.live === true,
    finished: index.finished !== false,
    target: readTarget(index.target),
    program: readProgram(program),
    programSeconds: number(program.seconds),
    findings: list(index.findings).map(record).map(readFinding),
    verdict: index.verdict ? readVerdict(record(index.verdict)) : null,
    notes: texts(index.notes),
    stages: list(index.stages).map(record).map(readStage),
    compiles: list(index.compiles).map(record).map(readCompile),
    graphs: list(index.graphs).map((graph, place) => readGraph(record(graph), place)),
    kernels: readKernels(record(index.kernels)),
    ledger: {
      chunk: text(ledger.chunk),
      fused: count(ledger.fused),
      refused: count(ledger.refused),
      never: count(ledger.never),
    },
    autotune: {
      chunk: text(autotune.chunk),
      searches: count(autotune.searches),
      choices: count(autotune.choices),
    },
    timeline: { chunk: text(timeline.chunk), spans: count(timeline.spans) },
  };
}

function readTarget(raw: unknown): Index["target"] {
  const target = record(raw);
  const name = text(target.name);
  const note = text(target.note) || (name && `Compiled for ${name}. Nothing ran on a GPU.`);
  return note ? { name, note } : null;
}

const PROGRAM_FACTS: [string, string][] = [
  ["command", "Command"],
  ["ending", "Ending"],
  ["started", "Started"],
  ["torch", "torch"],
  ["python", "Python"],
];

function readProgram(program: Raw): [string, string][] {
  return PROGRAM_FACTS.map(([key, label]): [string, string] => [label, text(program[key])]).filter(
    ([, value]) => value !== "",
  );
}

function readLevel(value: unknown): Level {
  return value === "error" || value === "warning" ? value : "note";
}

export function readConfidence(value: unknown): Confidence {
  return value === "proven" || value === "likely" ? value : "unknown";
}

function readFinding(raw: Raw): Finding {
  return {
    rule: text(raw.rule),
    title: text(raw.title),
    severity: readLevel(raw.severity),
    confidence: readConfidence(raw.confidence),
    text: text(raw.text),
    place: text(raw.place),
    advice: text(raw.what_to_do),
  };
}

function readVerdict(raw: Raw): Verdict {
  const culprit = Object.entries(record(raw.culprit)).map(([name, value]): [string, string] => [name, text(value)]);
  return {
    verdict: text(raw.verdict),
    stage: text(raw.stage),
    summary: text(raw.summary),
    confidence: readConfidence(raw.confidence),
    culprit: culprit.filter(([, value]) => value !== ""),
    evidence: list(raw.evidence)
      .map(record)
      .map((one) => ({ what: text(one.what), where: text(one.where) }))
      .filter((one) => one.what || one.where),
    reproducer: raw.repro ? readReproducer(record(raw.repro)) : null,
    workaround: raw.workaround ? readWorkaround(record(raw.workaround)) : null,
    issue: text(raw.issue),
  };
}

function readReproducer(raw: Raw): Reproducer {
  return {
    path: text(raw.path),
    verified: raw.verified === true,
    failed: number(raw.failed),
    of: number(raw.of),
    nodes: number(raw.nodes),
    text: text(raw.text),
  };
}

function readWorkaround(raw: Raw): Workaround {
  return { text: text(raw.text), verified: raw.verified === true, slowdown: number(raw.slowdown) };
}

function readStage(raw: Raw): Stage {
  return { name: text(raw.name), seconds: number(raw.seconds), explanation: text(raw.explanation) };
}

function readCompile(raw: Raw): Compile {
  return {
    id: text(raw.id),
    process: text(raw.process),
    function: text(raw.function),
    place: text(raw.place),
    outcome: text(raw.outcome),
    reason: text(raw.reason),
    seconds: number(raw.seconds),
    stages: numbersByName(raw.stages),
    graphs: list(raw.graphs).map(position).filter((one): one is number => one !== null),
    breaks: list(raw.breaks)
      .map(record)
      .map((one) => ({ reason: text(one.reason), source: text(one.source) })),
    recompile: raw.recompile ? readRecompile(record(raw.recompile)) : null,
    guardCount: number(raw.guard_count),
    guards: text(raw.guards),
    caches: list(raw.caches).map(record).map(readCacheUse),
    errors: list(raw.errors).map(record).map(readFailure),
  };
}

function readRecompile(raw: Raw): { reasons: string[]; limit: string } {
  return { reasons: texts(raw.reasons), limit: text(raw.limit) };
}

function readCacheUse(raw: Raw): CacheUse {
  return { cache: text(raw.cache), outcome: text(raw.outcome), key: text(raw.key), reason: text(raw.reason) };
}

function readFailure(raw: Raw): Failure {
  return {
    stage: text(raw.stage),
    type: text(raw.type),
    message: text(raw.message),
    source: text(raw.source),
    detail: text(raw.detail),
    traceback: text(raw.traceback),
  };
}

function readGraph(raw: Raw, index: number): Graph {
  return {
    index,
    key: text(raw.key) || `graph ${index}`,
    compile: position(raw.compile),
    phase: text(raw.phase),
    cached: raw.cached === true,
    finished: raw.finished !== false,
    seconds: numbersByName(raw.seconds),
    operations: count(raw.operations),
    kernels: count(raw.kernels),
    fusions: count(raw.fusions),
    chunk: text(raw.chunk),
    passes: text(raw.passes),
    schedule: text(raw.schedule),
  };
}

function readKernels(raw: Raw): KernelRow[] {
  const columns = texts(raw.columns);
  const place = (name: string): number => columns.indexOf(name);
  const [name, language, graph, operations] = ["name", "language", "graph", "operations"].map(place) as number[];
  const [lines, seconds, registers, spills, shared] = ["lines", "seconds", "registers", "spills", "shared"].map(
    place,
  ) as number[];
  return list(raw.rows)
    .map(list)
    .map((row) => ({
      name: text(row[name!]),
      language: text(row[language!]),
      graph: position(row[graph!]),
      operations: text(row[operations!]),
      lines: number(row[lines!]),
      seconds: number(row[seconds!]),
      registers: number(row[registers!]),
      spills: number(row[spills!]),
      shared: number(row[shared!]),
    }));
}
