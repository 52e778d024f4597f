/** The parts of the page that are inflated on demand, read into values that are always of one type. */

import { brief } from "./text";
import { type Raw, lineNumbers, list, number, position, record, text, texts } from "./values";

export interface Pane {
  id: string;
  title: string;
  language: string;
  text: string;
  labels: string[] | null;
  missing: string;
}

export interface Operation {
  name: string;
  label: string;
  lines: Map<string, number[]>;
}

export interface Form {
  name: string;
  config: string;
  chunk: string;
}

export interface Kernel {
  name: string;
  from: number;
  to: number;
  forms: Form[];
  formsMissing: string;
  facts: [string, string][];
}

export interface LinkedPanes {
  panes: Pane[];
  operations: Operation[];
  kernels: Kernel[];
}

export interface FormText {
  text: string;
  language: string;
  links: Map<number, number[]>;
}

export interface Pass {
  stage: string;
  name: string;
  seconds: number | null;
  before: string;
  after: string;
}

export interface ScheduleNode {
  id: string;
  kind: string;
  label: string;
  operations: string[];
  group: string;
  kernel: string;
  bytes: number | null;
}

export interface ScheduleEdge {
  from: string;
  to: string;
  buffer: string;
  bytes: number | null;
  inside: boolean;
}

export interface ScheduleGroup {
  id: string;
  kind: string;
  members: string[];
  kernel: string;
}

export interface Schedule {
  nodes: ScheduleNode[];
  edges: ScheduleEdge[];
  groups: ScheduleGroup[];
}

export interface Decision {
  row: number;
  graph: string;
  first: string;
  second: string;
  firstOperations: string[];
  secondOperations: string[];
  relation: string;
  outcome: string;
  kind: string;
  score: number | null;
  bytes: number | null;
  microseconds: number | null;
  reason: string;
  torch: string;
  rounds: number[];
  advice: string;
}

export interface Choice {
  name: string;
  description: string;
  milliseconds: number | null;
  state: string;
  error: string;
}

export interface Search {
  graph: string;
  operation: string;
  winner: string;
  choices: Choice[];
}

export interface Span {
  lane: number;
  start: number;
  seconds: number;
  depth: number;
  stage: string;
  label: string;
  graph: number | null;
}

export interface Timeline {
  lanes: { name: string; kind: string }[];
  spans: Span[];
}

export function readLinkedPanes(raw: unknown): LinkedPanes {
  const chunk = record(raw);
  return {
    panes: list(chunk.panes).map((pane, place) => readPane(record(pane), place)),
    operations: list(chunk.operations).map(record).map(readOperation),
    kernels: list(chunk.kernels).map(record).map(readKernel),
  };
}

function readPane(raw: Raw, place: number): Pane {
  const id = text(raw.id) || `pane-${place + 1}`;
  const labels = Array.isArray(raw.numbers) ? raw.numbers.map((label) => brief(text(label), 12)) : null;
  return {
    id,
    title: brief(text(raw.title) || id, 60),
    language: text(raw.language),
    text: text(raw.text),
    labels,
    missing: text(raw.missing),
  };
}

function readOperation(raw: Raw): Operation {
  const lines = new Map<string, number[]>();
  for (const [pane, numbers] of Object.entries(record(raw.lines))) {
    const read = lineNumbers(numbers);
    if (read.length) lines.set(pane, read);
  }
  return { name: text(raw.name) || "(no name)", label: text(raw.label), lines };
}

function readKernel(raw: Raw): Kernel {
  const from = number(raw.from) ?? 0;
  const facts = Object.entries(record(raw.facts)).map(([name, value]): [string, string] => [name, text(value)]);
  return {
    name: text(raw.name) || "(no name)",
    from,
    to: number(raw.to) ?? from,
    forms: list(raw.forms).map(record).map(readForm),
    formsMissing: text(raw.forms_missing),
    facts: facts.filter(([, value]) => value !== ""),
  };
}

function readForm(raw: Raw): Form {
  return { name: text(raw.name) || "form", config: text(raw.config), chunk: text(raw.chunk) };
}

export function readFormText(raw: unknown): FormText {
  const chunk = record(raw);
  const links = new Map<number, number[]>();
  for (const [line, numbers] of Object.entries(record(chunk.links))) {
    if (/^\d+$/.test(line)) links.set(Number(line), lineNumbers(numbers));
  }
  return { text: text(chunk.text), language: text(chunk.language), links };
}

export function readPasses(raw: unknown): Pass[] {
  return list(raw)
    .map(record)
    .map((one) => ({
      stage: text(one.stage),
      name: text(one.name) || "(no name)",
      seconds: number(one.seconds),
      before: text(one.before),
      after: text(one.after),
    }));
}

export function readSchedule(raw: unknown): Schedule {
  const chunk = record(raw);
  const nodes = uniqueById(list(chunk.nodes).map(record).map(readScheduleNode));
  const known = new Set(nodes.map((node) => node.id));
  const edges = list(chunk.edges)
    .map(record)
    .map((edge) => ({
      from: text(edge.from),
      to: text(edge.to),
      buffer: text(edge.buffer),
      bytes: number(edge.bytes),
      inside: edge.inside === true,
    }))
    .filter((edge) => known.has(edge.from) && known.has(edge.to) && edge.from !== edge.to);
  return { nodes, edges, groups: uniqueById(list(chunk.groups).map(record).map(readScheduleGroup)) };
}

function uniqueById<Item extends { id: string }>(items: Item[]): Item[] {
  const found = new Map<string, Item>();
  for (const item of items) if (item.id && !found.has(item.id)) found.set(item.id, item);
  return [...found.values()];
}

function readScheduleNode(raw: Raw): ScheduleNode {
  return {
    id: text(raw.id),
    kind: text(raw.kind),
    label: text(raw.label),
    operations: texts(raw.operations),
    group: text(raw.group),
    kernel: text(raw.kernel),
    bytes: number(raw.bytes),
  };
}

function readScheduleGroup(raw: Raw): ScheduleGroup {
  return { id: text(raw.id), kind: text(raw.kind), members: texts(raw.members), kernel: text(raw.kernel) };
}

export function readLedger(raw: unknown): Decision[] {
  return list(raw)
    .map(record)
    .map((one, row) => ({
      row,
      graph: text(one.graph),
      first: text(one.first),
      second: text(one.second),
      firstOperations: texts(one.first_operations),
      secondOperations: texts(one.second_operations),
      relation: text(one.relation),
      outcome: text(one.outcome),
      kind: text(one.kind),
      score: number(one.score),
      bytes: number(one.bytes),
      microseconds: number(one.microseconds),
      reason: text(one.reason),
      torch: text(one.torch),
      rounds: lineNumbers(one.rounds),
      advice: text(one.what_to_change),
    }));
}

export function readAutotune(raw: unknown): Search[] {
  return list(raw)
    .map(record)
    .map((one) => ({
      graph: text(one.graph),
      operation: text(one.operation) || "(no name)",
      winner: text(one.winner),
      choices: list(one.choices).map(record).map(readChoice),
    }));
}

function readChoice(raw: Raw): Choice {
  return {
    name: text(raw.name),
    description: text(raw.description),
    milliseconds: number(raw.milliseconds),
    state: text(raw.state),
    error: text(raw.error),
  };
}

export function readTimeline(raw: unknown): Timeline {
  const chunk = record(raw);
  const lanes = list(chunk.lanes).map(record).map((lane) => ({ name: text(lane.name), kind: text(lane.kind) }));
  const spans = list(chunk.spans).map(record).map(readSpan).filter((span): span is Span => span !== null);
  for (const span of spans) {
    while (lanes.length <= span.lane && lanes.length < 1000) lanes.push({ name: "", kind: "" });
  }
  return { lanes, spans: spans.filter((span) => span.lane < lanes.length) };
}

function readSpan(raw: Raw): Span | null {
  const start = number(raw.start);
  const seconds = number(raw.seconds);
  if (start === null || seconds === null || seconds < 0) return null;
  return {
    lane: position(raw.lane) ?? 0,
    start,
    seconds,
    depth: Math.min(position(raw.depth) ?? 0, 50),
    stage: text(raw.stage),
    label: text(raw.label),
    graph: position(raw.graph),
  };
}

export function readGuards(raw: unknown): string {
  return text(record(raw).text);
}

