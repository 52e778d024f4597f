/**
 * Everything that the page is given. Generated from src/inductoscope/views/page/contract.py by
 * `python web/typescript.py`: change it there.
 */

import { type Reader, byName, count, flag, flagUnlessFalse, lineNumbers, list, number, object, oneOf, orNull, real, sharedTable, table, text, texts, whole, wholes } from "./values";

export interface Target {
  name: string;
  note: string;
}

export const readTarget = object<Target>({
  name: text,
  note: text,
});

export interface Program {
  command: string;
  torch: string;
  python: string;
  started: string;
  seconds: number | null;
  ending: string;
}

export const readProgram = object<Program>({
  command: text,
  torch: text,
  python: text,
  started: text,
  seconds: number,
  ending: text,
});

export interface Finding {
  rule: string;
  title: string;
  severity: "error" | "warning" | "note";
  confidence: "proven" | "likely" | "unknown";
  text: string;
  place: string;
  what_to_do: string;
}

export const readFinding = object<Finding>({
  rule: text,
  title: text,
  severity: oneOf("error", "warning", "note"),
  confidence: oneOf("proven", "likely", "unknown"),
  text: text,
  place: text,
  what_to_do: text,
});

export interface WrongValue {
  where: string;
  index: number[];
  actual: string;
  expected: string;
  float64: string;
  wrong: number;
  elements: number;
}

export const readWrongValue = object<WrongValue>({
  where: text,
  index: wholes,
  actual: text,
  expected: text,
  float64: text,
  wrong: count,
  elements: count,
});

export interface Evidence {
  what: string;
  where: string;
}

export const readEvidence = object<Evidence>({
  what: text,
  where: text,
});

export interface Reproducer {
  path: string;
  verified: boolean;
  failed: number | null;
  of: number | null;
  nodes: number | null;
  text: string;
}

export const readReproducer = object<Reproducer>({
  path: text,
  verified: flag,
  failed: whole,
  of: whole,
  nodes: whole,
  text: text,
});

export interface Workaround {
  text: string;
  code: string;
  verified: boolean;
  slowdown: number | null;
}

export const readWorkaround = object<Workaround>({
  text: text,
  code: text,
  verified: flag,
  slowdown: number,
});

export interface TrailBuffer {
  name: string;
  node: string;
  operation: string;
  source: string;
  made_by: string;
}

export const readTrailBuffer = object<TrailBuffer>({
  name: text,
  node: text,
  operation: text,
  source: text,
  made_by: text,
});

export interface TrailStep {
  kernel: string;
  call: number;
  buffers: TrailBuffer[];
  reads: TrailBuffer[];
}

export const readTrailStep = object<TrailStep>({
  kernel: text,
  call: count,
  buffers: list(readTrailBuffer),
  reads: list(readTrailBuffer),
});

export interface Trail {
  graph: number | null;
  calls: number;
  steps: TrailStep[];
  reaches_fault: boolean;
  fault: string;
  wrong: string;
  how: string;
}

export const readTrail = object<Trail>({
  graph: whole,
  calls: count,
  steps: list(readTrailStep),
  reaches_fault: flag,
  fault: text,
  wrong: text,
  how: text,
});

export interface Verdict {
  verdict: string;
  stage: string;
  summary: string;
  confidence: "proven" | "likely" | "unknown";
  culprit: Map<string, string>;
  values: WrongValue[];
  evidence: Evidence[];
  notes: Evidence[];
  not_checked: string[];
  partial: boolean;
  repro: Reproducer | null;
  workaround: Workaround | null;
  issue: string;
  trail: Trail | null;
}

export const readVerdict = object<Verdict>({
  verdict: text,
  stage: text,
  summary: text,
  confidence: oneOf("proven", "likely", "unknown"),
  culprit: byName(text),
  values: list(readWrongValue),
  evidence: list(readEvidence),
  notes: list(readEvidence),
  not_checked: texts,
  partial: flag,
  repro: orNull(readReproducer),
  workaround: orNull(readWorkaround),
  issue: text,
  trail: orNull(readTrail),
});

export interface StageTime {
  name: string;
  seconds: number;
  explanation: string;
}

export const readStageTime = object<StageTime>({
  name: text,
  seconds: real,
  explanation: text,
});

export interface GraphBreak {
  compile: string;
  reason: string;
  source: string;
  stack: string[];
  code: string;
}

export const readGraphBreak = object<GraphBreak>({
  compile: text,
  reason: text,
  source: text,
  stack: texts,
  code: text,
});

export interface Recompile {
  compile: string;
  reasons: string[];
  callers: string[];
  limit: string;
}

export const readRecompile = object<Recompile>({
  compile: text,
  reasons: texts,
  callers: texts,
  limit: text,
});

export interface CacheLookup {
  cache: string;
  outcome: string;
  compile: string;
  key: string;
  reason: string;
}

export const readCacheLookup = object<CacheLookup>({
  cache: text,
  outcome: text,
  compile: text,
  key: text,
  reason: text,
});

export interface Failure {
  stage: string;
  type: string;
  message: string;
  source: string;
  detail: string;
  traceback: string;
}

export const readFailure = object<Failure>({
  stage: text,
  type: text,
  message: text,
  source: text,
  detail: text,
  traceback: text,
});

export interface Compile {
  id: string;
  process: string;
  flow: string;
  function: string;
  place: string;
  outcome: string;
  reason: string;
  seconds: number | null;
  stages: Map<string, number>;
  graphs: number[];
  breaks: GraphBreak[];
  recompile: Recompile | null;
  guard_count: number;
  guards: string;
  package: string;
  caches: CacheLookup[];
  errors: Failure[];
  decompositions: Map<string, number>;
}

export const readCompile = object<Compile>({
  id: text,
  process: text,
  flow: text,
  function: text,
  place: text,
  outcome: text,
  reason: text,
  seconds: number,
  stages: byName(real),
  graphs: wholes,
  breaks: list(readGraphBreak),
  recompile: orNull(readRecompile),
  guard_count: count,
  guards: text,
  package: text,
  caches: list(readCacheLookup),
  errors: list(readFailure),
  decompositions: byName(count),
});

export interface Graph {
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
  buffers: string;
}

export const readGraph = object<Graph>({
  key: text,
  compile: whole,
  phase: text,
  cached: flag,
  finished: flagUnlessFalse,
  seconds: byName(real),
  operations: count,
  kernels: count,
  fusions: count,
  chunk: text,
  passes: text,
  schedule: text,
  buffers: text,
});

export interface KernelRow {
  id: string;
  name: string;
  language: string;
  made: string;
  calls: number;
  graph: number | null;
  operations: string;
  lines: number;
  bytes: number | null;
  seconds: number | null;
  registers: number | null;
  spills: number | null;
  shared: number | null;
}

export const readKernelRow = object<KernelRow>({
  id: text,
  name: text,
  language: text,
  made: text,
  calls: count,
  graph: whole,
  operations: text,
  lines: count,
  bytes: whole,
  seconds: number,
  registers: whole,
  spills: whole,
  shared: whole,
});

export interface LedgerCause {
  outcome: string;
  condition: string;
  pairs: number;
  bytes: number | null;
  at_most: boolean;
  reason: string;
  what_to_change: string;
}

export const readLedgerCause = object<LedgerCause>({
  outcome: text,
  condition: text,
  pairs: count,
  bytes: whole,
  at_most: flag,
  reason: text,
  what_to_change: text,
});

export interface LedgerHead {
  chunk: string;
  causes: LedgerCause[];
  fused: number;
  refused: number;
  never: number;
}

export const readLedgerHead = object<LedgerHead>({
  chunk: text,
  causes: list(readLedgerCause),
  fused: count,
  refused: count,
  never: count,
});

export interface AutotuneHead {
  chunk: string;
  searches: number;
  choices: number;
}

export const readAutotuneHead = object<AutotuneHead>({
  chunk: text,
  searches: count,
  choices: count,
});

export interface TimelineHead {
  chunk: string;
  spans: number;
}

export const readTimelineHead = object<TimelineHead>({
  chunk: text,
  spans: count,
});

export interface ModulesHead {
  chunk: string;
}

export const readModulesHead = object<ModulesHead>({
  chunk: text,
});

export interface ProfileHead {
  chunk: string;
  kernels: number;
  seconds: number;
  headline: string;
}

export const readProfileHead = object<ProfileHead>({
  chunk: text,
  kernels: count,
  seconds: real,
  headline: text,
});

export interface MeasuredHead {
  chunk: string;
  count: number;
}

export const readMeasuredHead = object<MeasuredHead>({
  chunk: text,
  count: count,
});

export interface Index {
  schema: number;
  inductoscope: string;
  title: string;
  recording: string;
  live: boolean;
  finished: boolean;
  target: Target | null;
  program: Program;
  findings: Finding[];
  verdict: Verdict | null;
  notes: string[];
  stages: StageTime[];
  compiles: Compile[];
  graphs: Graph[];
  kernels: KernelRow[];
  ledger: LedgerHead;
  autotune: AutotuneHead;
  timeline: TimelineHead;
  names: string;
  modules: ModulesHead;
  profile: ProfileHead | null;
  memory: MeasuredHead | null;
  advice: MeasuredHead | null;
  costs: MeasuredHead | null;
}

export const readIndex = object<Index>({
  schema: count,
  inductoscope: text,
  title: text,
  recording: text,
  live: flag,
  finished: flagUnlessFalse,
  target: orNull(readTarget),
  program: readProgram,
  findings: list(readFinding),
  verdict: orNull(readVerdict),
  notes: texts,
  stages: list(readStageTime),
  compiles: list(readCompile),
  graphs: list(readGraph),
  kernels: table(readKernelRow),
  ledger: readLedgerHead,
  autotune: readAutotuneHead,
  timeline: readTimelineHead,
  names: text,
  modules: readModulesHead,
  profile: orNull(readProfileHead),
  memory: orNull(readMeasuredHead),
  advice: orNull(readMeasuredHead),
  costs: orNull(readMeasuredHead),
});

export interface Pane {
  id: string;
  title: string;
  language: string;
  text: string;
  numbers: (number | null)[] | null;
  missing: string;
}

export const readPane = object<Pane>({
  id: text,
  title: text,
  language: text,
  text: text,
  numbers: orNull(list(whole)),
  missing: text,
});

export interface Operation {
  name: string;
  label: string;
  module: string;
  no_code: string;
  lines: Map<string, number[]>;
  leads: Map<string, number[]>;
}

export const readOperation = object<Operation>({
  name: text,
  label: text,
  module: text,
  no_code: text,
  lines: byName(lineNumbers),
  leads: byName(lineNumbers),
});

export interface FormHead {
  name: string;
  config: string;
  chunk: string;
  milliseconds: number | null;
  ran: boolean;
}

export const readFormHead = object<FormHead>({
  name: text,
  config: text,
  chunk: text,
  milliseconds: number,
  ran: flag,
});

export interface PaneKernel {
  id: string;
  name: string;
  first_line: number;
  last_line: number;
  forms: FormHead[];
  forms_missing: string;
  facts: Map<string, number>;
}

export const readPaneKernel = object<PaneKernel>({
  id: text,
  name: text,
  first_line: count,
  last_line: count,
  forms: list(readFormHead),
  forms_missing: text,
  facts: byName(real),
});

export interface LinkedPanes {
  panes: Pane[];
  operations: Operation[];
  kernels: PaneKernel[];
}

export const readLinkedPanes = object<LinkedPanes>({
  panes: list(readPane),
  operations: list(readOperation),
  kernels: list(readPaneKernel),
});

export interface SourceText {
  language: string;
  text: string;
  keys: string[];
  counts: number[];
}

export const readSourceText = object<SourceText>({
  language: text,
  text: text,
  keys: texts,
  counts: wholes,
});

export interface SourceKernel {
  nodes: string[];
  library: boolean;
  texts: number[];
  own: number[];
  numbered: Map<string, Map<string, number[]>>;
}

export const readSourceKernel = object<SourceKernel>({
  nodes: texts,
  library: flag,
  texts: wholes,
  own: wholes,
  numbered: byName(byName(wholes)),
});

export interface SourceCall {
  line: number;
  kernel: number;
}

export const readSourceCall = object<SourceCall>({
  line: count,
  kernel: count,
});

export interface GraphSources {
  titles: Map<string, string>;
  graphs: Map<string, string>;
  texts: Map<string, SourceText>;
  missing: Map<string, string>;
  wrapper_line: number;
  kernels: PaneKernel[];
  called: SourceKernel[];
  calls: SourceCall[];
  computed: Map<string, string[]>;
  origins: Map<string, string[]>;
  steps: Map<string, Map<string, string[]>>;
  bodyless: string[];
  no_code: Map<string, string>;
  library_files: string[];
}

export const readGraphSources = object<GraphSources>({
  titles: byName(text),
  graphs: byName(text),
  texts: byName(readSourceText),
  missing: byName(text),
  wrapper_line: count,
  kernels: list(readPaneKernel),
  called: list(readSourceKernel),
  calls: list(readSourceCall),
  computed: byName(texts),
  origins: byName(texts),
  steps: byName(byName(texts)),
  bodyless: texts,
  no_code: byName(text),
  library_files: texts,
});

export interface FormText {
  text: string;
  language: string;
  links: Map<string, number[]>;
}

export const readFormText = object<FormText>({
  text: text,
  language: text,
  links: byName(lineNumbers),
});

export interface Pass {
  stage: string;
  name: string;
  seconds: number | null;
  before: number;
  after: number;
}

export const readPass = object<Pass>({
  stage: text,
  name: text,
  seconds: number,
  before: count,
  after: count,
});

export interface Passes {
  texts: string[];
  graphs: string[];
  passes: Pass[];
}

export const readPasses = object<Passes>({
  texts: texts,
  graphs: texts,
  passes: list(readPass),
});

export interface ScheduleNode {
  id: string;
  kind: string;
  label: string;
  operations: string[];
  group: string;
  kernel: string;
  bytes: number | null;
}

export const readScheduleNode = object<ScheduleNode>({
  id: text,
  kind: text,
  label: text,
  operations: texts,
  group: text,
  kernel: text,
  bytes: whole,
});

export interface ScheduleEdge {
  writer: string;
  reader: string;
  buffer: string;
  bytes: number | null;
  inside: boolean;
}

export const readScheduleEdge = object<ScheduleEdge>({
  writer: text,
  reader: text,
  buffer: text,
  bytes: whole,
  inside: flag,
});

export interface ScheduleGroup {
  id: string;
  kind: string;
  members: string[];
  kernel: string;
}

export const readScheduleGroup = object<ScheduleGroup>({
  id: text,
  kind: text,
  members: texts,
  kernel: text,
});

export interface Schedule {
  nodes: ScheduleNode[];
  edges: ScheduleEdge[];
  groups: ScheduleGroup[];
}

export const readSchedule = object<Schedule>({
  nodes: list(readScheduleNode),
  edges: list(readScheduleEdge),
  groups: list(readScheduleGroup),
});

export interface BufferRow {
  name: string;
  kind: string;
  dtype: string;
  size: string;
  stride: string;
  bytes: number | null;
  operation: string;
  led_here: string[];
  node: string;
  kernel: string;
  read_by: string[];
  takes_over: string;
  given_to: string;
  part_of: string;
}

export const readBufferRow = object<BufferRow>({
  name: text,
  kind: text,
  dtype: text,
  size: text,
  stride: text,
  bytes: whole,
  operation: text,
  led_here: texts,
  node: text,
  kernel: text,
  read_by: texts,
  takes_over: text,
  given_to: text,
  part_of: text,
});

export interface NamedThing {
  kind: string;
  name: string;
  note: string;
  graph: number | null;
  operations: string[];
}

export const readNamedThing = object<NamedThing>({
  kind: text,
  name: text,
  note: text,
  graph: whole,
  operations: texts,
});

export interface Guards {
  text: string;
}

export const readGuards = object<Guards>({
  text: text,
});

export interface PackageInput {
  name: string;
  dtype: string;
  sizes: string[];
  strides: string[];
  device: string;
  aligned_to: number;
}

export const readPackageInput = object<PackageInput>({
  name: text,
  dtype: text,
  sizes: texts,
  strides: texts,
  device: text,
  aligned_to: count,
});

export interface PackageSize {
  name: string;
  expression: string;
}

export const readPackageSize = object<PackageSize>({
  name: text,
  expression: text,
});

export interface PackageConstant {
  name: string;
  kind: string;
  dtype: string;
  shape: string;
  device: string;
  bytes: number;
  written_by: string;
}

export const readPackageConstant = object<PackageConstant>({
  name: text,
  kind: text,
  dtype: text,
  shape: text,
  device: text,
  bytes: count,
  written_by: text,
});

export interface PackageContents {
  inputs: PackageInput[];
  sizes: PackageSize[];
  constants: PackageConstant[];
}

export const readPackageContents = object<PackageContents>({
  inputs: list(readPackageInput),
  sizes: list(readPackageSize),
  constants: list(readPackageConstant),
});

export interface LedgerRow {
  outcome: "fused" | "refused" | "never tried";
  kind: string;
  score: number | null;
  reason: string;
  torch: string;
  confidence: "proven" | "likely" | "unknown";
  what_to_change: string;
  condition: string;
  values: string[];
  graph: string;
  first: string;
  second: string;
  first_operations: string[];
  second_operations: string[];
  relation: string;
  bytes: number | null;
  at_most: boolean;
  microseconds: number | null;
  rounds: number[];
  buffers: string[];
  groups: string[];
  kernels: string[];
}

export const readLedgerRow = object<LedgerRow>({
  outcome: oneOf("fused", "refused", "never tried"),
  kind: text,
  score: number,
  reason: text,
  torch: text,
  confidence: oneOf("proven", "likely", "unknown"),
  what_to_change: text,
  condition: text,
  values: texts,
  graph: text,
  first: text,
  second: text,
  first_operations: texts,
  second_operations: texts,
  relation: text,
  bytes: whole,
  at_most: flag,
  microseconds: number,
  rounds: wholes,
  buffers: texts,
  groups: texts,
  kernels: texts,
});

export interface Choice {
  name: string;
  description: string;
  milliseconds: number | null;
  state: string;
  error: string;
}

export const readChoice = object<Choice>({
  name: text,
  description: text,
  milliseconds: number,
  state: text,
  error: text,
});

export interface Search {
  graph: string;
  operation: string;
  inputs: string[];
  taken: string;
  winner: string;
  choices: Choice[];
}

export const readSearch = object<Search>({
  graph: text,
  operation: text,
  inputs: texts,
  taken: text,
  winner: text,
  choices: list(readChoice),
});

export interface Lane {
  name: string;
  kind: string;
}

export const readLane = object<Lane>({
  name: text,
  kind: text,
});

export interface Span {
  lane: number;
  start: number;
  seconds: number;
  depth: number;
  stage: string;
  label: string;
  graph: number | null;
}

export const readSpan = object<Span>({
  lane: count,
  start: real,
  seconds: real,
  depth: count,
  stage: text,
  label: text,
  graph: whole,
});

export interface Timeline {
  lanes: Lane[];
  spans: Span[];
}

export const readTimeline = object<Timeline>({
  lanes: list(readLane),
  spans: list(readSpan),
});

export interface Module {
  path: string;
  label: string;
  kind: string;
  parent: number | null;
  operations: number;
  graphs: number[];
  alike: number | null;
}

export const readModule = object<Module>({
  path: text,
  label: text,
  kind: text,
  parent: whole,
  operations: count,
  graphs: wholes,
  alike: whole,
});

export interface ModuleKernel {
  module: number;
  graph: number;
  id: string;
  name: string;
  calls: number;
  bytes: number | null;
  seconds: number | null;
}

export const readModuleKernel = object<ModuleKernel>({
  module: count,
  graph: count,
  id: text,
  name: text,
  calls: count,
  bytes: whole,
  seconds: number,
});

export interface ModuleTree {
  modules: Module[];
  kernels: ModuleKernel[];
}

export const readModuleTree = object<ModuleTree>({
  modules: table(readModule),
  kernels: table(readModuleKernel),
});

export interface ProfiledKernel {
  graph: number | null;
  id: string;
  name: string;
  device: string;
  sizes: string;
  calls: number;
  median: number;
  low: number;
  high: number;
  total: number;
  lost: number;
  bytes: number | null;
  flops: number | null;
  floor: number | null;
  limit: string;
  operations: string;
  places: string[];
}

export const readProfiledKernel = object<ProfiledKernel>({
  graph: whole,
  id: text,
  name: text,
  device: text,
  sizes: text,
  calls: count,
  median: real,
  low: real,
  high: real,
  total: real,
  lost: real,
  bytes: whole,
  flops: whole,
  floor: number,
  limit: text,
  operations: text,
  places: texts,
});

export interface UsualKernel {
  id: string;
  name: string;
  start: number;
  seconds: number;
}

export const readUsualKernel = object<UsualKernel>({
  id: text,
  name: text,
  start: real,
  seconds: real,
});

export interface ProfiledGraph {
  graph: number | null;
  key: string;
  function: string;
  sizes: string;
  device: string;
  measured_by: string;
  calls: number;
  median: number;
  low: number;
  high: number;
  eager: number | null;
  slower_than_eager: boolean;
  usual: number | null;
  kernels: UsualKernel[];
}

export const readProfiledGraph = object<ProfiledGraph>({
  graph: whole,
  key: text,
  function: text,
  sizes: text,
  device: text,
  measured_by: text,
  calls: count,
  median: real,
  low: real,
  high: real,
  eager: number,
  slower_than_eager: flag,
  usual: number,
  kernels: table(readUsualKernel),
});

export interface ProfiledMachine {
  device: string;
  name: string;
  threads: number;
  measured: string;
  bandwidth: number;
  cached_bandwidth: number;
  matrix: Map<string, number>;
}

export const readProfiledMachine = object<ProfiledMachine>({
  device: text,
  name: text,
  threads: count,
  measured: text,
  bandwidth: real,
  cached_bandwidth: real,
  matrix: byName(real),
});

export interface Profile {
  headline: string;
  kernels: ProfiledKernel[];
  graphs: ProfiledGraph[];
  machines: ProfiledMachine[];
  notes: string[];
}

export const readProfile = object<Profile>({
  headline: text,
  kernels: table(readProfiledKernel),
  graphs: list(readProfiledGraph),
  machines: list(readProfiledMachine),
  notes: texts,
});

export interface MemoryPoint {
  seconds: number;
  total: number;
}

export const readMemoryPoint = object<MemoryPoint>({
  seconds: real,
  total: count,
});

export interface AliveBlock {
  bytes: number;
  kind: string;
  name: string;
  graph: string;
  operation: string;
  source: string;
  begin: number | null;
  end: number | null;
}

export const readAliveBlock = object<AliveBlock>({
  bytes: count,
  kind: text,
  name: text,
  graph: text,
  operation: text,
  source: text,
  begin: number,
  end: number,
});

export interface MemoryCourse {
  device: string;
  seconds: number;
  base: number;
  peak: number;
  peak_seconds: number;
  unknown: number;
  left_out: number;
  left_out_bytes: number;
  points: MemoryPoint[];
  alive: AliveBlock[];
}

export const readMemoryCourse = object<MemoryCourse>({
  device: text,
  seconds: real,
  base: count,
  peak: count,
  peak_seconds: real,
  unknown: count,
  left_out: count,
  left_out_bytes: count,
  points: table(readMemoryPoint),
  alive: table(readAliveBlock),
});

export interface MemoryStep {
  function: string;
  place: string;
  call: number;
  compiled: MemoryCourse;
  eager: MemoryCourse | null;
}

export const readMemoryStep = object<MemoryStep>({
  function: text,
  place: text,
  call: count,
  compiled: readMemoryCourse,
  eager: orNull(readMemoryCourse),
});

export interface MemoryChange {
  change: string;
  why: string;
  peak: number | null;
  ratio: number | null;
  time_ratio: number | null;
  verdict: string;
  helps: boolean;
  note: string;
}

export const readMemoryChange = object<MemoryChange>({
  change: text,
  why: text,
  peak: whole,
  ratio: number,
  time_ratio: number,
  verdict: text,
  helps: flag,
  note: text,
});

export interface Memory {
  headline: string;
  steps: MemoryStep[];
  tried: MemoryChange[];
  notes: string[];
}

export const readMemory = object<Memory>({
  headline: text,
  steps: list(readMemoryStep),
  tried: list(readMemoryChange),
  notes: texts,
});

export interface AdvisedChange {
  change: string;
  code: string;
  why: string;
  source: string;
  saved: number | null;
  predicted: number | null;
  prediction: string;
  ratio: number | null;
  helps: boolean;
  warning: string;
  how: string;
}

export const readAdvisedChange = object<AdvisedChange>({
  change: text,
  code: text,
  why: text,
  source: text,
  saved: number,
  predicted: number,
  prediction: text,
  ratio: number,
  helps: flag,
  warning: text,
  how: text,
});

export interface AdvisedCost {
  what: string;
  seconds: number;
  source: string;
  how: string;
}

export const readAdvisedCost = object<AdvisedCost>({
  what: text,
  seconds: real,
  source: text,
  how: text,
});

export interface Advice {
  ratio: number | null;
  how: string;
  error: string;
  changes: AdvisedChange[];
  costs: AdvisedCost[];
}

export const readAdvice = object<Advice>({
  ratio: number,
  how: text,
  error: text,
  changes: list(readAdvisedChange),
  costs: list(readAdvisedCost),
});

export interface StageCost {
  stage: string;
  own: number;
  total: number;
  entered: number;
  warm: number | null;
  exponent: number | null;
}

export const readStageCost = object<StageCost>({
  stage: text,
  own: real,
  total: real,
  entered: count,
  warm: number,
  exponent: number,
});

export interface Costs {
  headline: string;
  cold: number;
  warm: number | null;
  stages: StageCost[];
  noise: string;
}

export const readCosts = object<Costs>({
  headline: text,
  cold: real,
  warm: number,
  stages: list(readStageCost),
  noise: text,
});

export type GraphChunk = LinkedPanes;
export const readGraphChunk: Reader<GraphChunk> = readLinkedPanes;

export type SourcesChunk = GraphSources;
export const readSourcesChunk: Reader<SourcesChunk> = readGraphSources;

export type FormChunk = FormText;
export const readFormChunk: Reader<FormChunk> = readFormText;

export type PassesChunk = Passes;
export const readPassesChunk: Reader<PassesChunk> = readPasses;

export type ScheduleChunk = Schedule;
export const readScheduleChunk: Reader<ScheduleChunk> = readSchedule;

export type BuffersChunk = BufferRow[];
export const readBuffersChunk: Reader<BuffersChunk> = table(readBufferRow);

export type NamesChunk = NamedThing[];
export const readNamesChunk: Reader<NamesChunk> = table(readNamedThing);

export type GuardsChunk = Guards;
export const readGuardsChunk: Reader<GuardsChunk> = readGuards;

export type PackageChunk = PackageContents;
export const readPackageChunk: Reader<PackageChunk> = readPackageContents;

export type LedgerChunk = LedgerRow[];
export const readLedgerChunk: Reader<LedgerChunk> = sharedTable(readLedgerRow);

export type AutotuneChunk = Search[];
export const readAutotuneChunk: Reader<AutotuneChunk> = list(readSearch);

export type TimelineChunk = Timeline;
export const readTimelineChunk: Reader<TimelineChunk> = readTimeline;

export type ModulesChunk = ModuleTree;
export const readModulesChunk: Reader<ModulesChunk> = readModuleTree;

export type ProfileChunk = Profile;
export const readProfileChunk: Reader<ProfileChunk> = readProfile;

export type MemoryChunk = Memory;
export const readMemoryChunk: Reader<MemoryChunk> = readMemory;

export type AdviceChunk = Advice;
export const readAdviceChunk: Reader<AdviceChunk> = readAdvice;

export type CostsChunk = Costs;
export const readCostsChunk: Reader<CostsChunk> = readCosts;

export type Confidence = "proven" | "likely" | "unknown";
export const CONFIDENCES: Record<Confidence, string> = {
  proven: "A run showed it.",
  likely: "A rule matched what was recorded; no run showed it.",
  unknown: "Nothing has established it.",
};
