/** The parts of the page that are inflated on demand, made fit for drawing. */

import * as contract from "./contract";
import type { Part, PartReader } from "./data";
import { graphText } from "./fx";
import { type LinkedGraph, linkPanes } from "./link";
import { brief } from "./text";

export interface Pane extends contract.Pane {
  /** What is shown beside the lines; null where it is their number. */
  labels: string[] | null;
}

export interface LinkedPanes extends Omit<LinkedGraph, "panes"> {
  panes: Pane[];
}

/** Linked by who made the page, or now: the chunk's name tells. */
export function panesReader(name: string): PartReader<LinkedPanes> {
  return name.startsWith("sources-") ? linkSources : (raw) => shownPanes(contract.readGraphChunk(raw));
}

async function linkSources(raw: unknown, part: Part): Promise<LinkedPanes> {
  const sources = contract.readSourcesChunk(raw);
  const graphs = [...sources.graphs].map(async ([pane, name]): Promise<[string, unknown]> => [pane, await whole(name, part)]);
  return shownPanes(linkPanes(sources, new Map(await Promise.all(graphs))));
}

/** A recorded graph; nothing where it is damaged. */
async function whole(name: string, part: Part): Promise<unknown> {
  return part(name).catch(() => null);
}

function shownPanes(chunk: LinkedGraph): LinkedPanes {
  const panes = chunk.panes.map((pane, place): Pane => {
    const id = pane.id || `pane-${place + 1}`;
    const labels = pane.numbers?.map((label) => (label === null ? "" : String(label))) ?? null;
    return { ...pane, id, title: brief(pane.title || id, 60), labels };
  });
  return { ...chunk, panes };
}

export interface FormText extends Omit<contract.FormText, "links"> {
  links: Map<number, number[]>;
}

export function readFormText(raw: unknown): FormText {
  const chunk = contract.readFormChunk(raw);
  const links = new Map([...chunk.links].map(([line, lines]): [number, number[]] => [Number(line), lines]));
  return { ...chunk, links };
}

export interface Pass extends Omit<contract.Pass, "before" | "after"> {
  before: string;
  after: string;
}

export async function readPasses(raw: unknown, part: Part): Promise<Pass[]> {
  const { texts: written, graphs, passes } = contract.readPassesChunk(raw);
  const read = async (name: string): Promise<string> => graphText(await whole(name, part));
  const texts = graphs.length ? await Promise.all(graphs.map(read)) : written;
  return passes.map((pass) => ({ ...pass, before: texts[pass.before] ?? "", after: texts[pass.after] ?? "" }));
}

/** Edges lead from a node to another that is there. */
export function readSchedule(raw: unknown): contract.Schedule {
  const chunk = contract.readScheduleChunk(raw);
  const nodes = uniqueById(chunk.nodes);
  const known = new Set(nodes.map((node) => node.id));
  const edges = chunk.edges.filter(
    ({ writer, reader }) => known.has(writer) && known.has(reader) && writer !== reader,
  );
  return { nodes, edges, groups: uniqueById(chunk.groups) };
}

function uniqueById<Item extends { id: string }>(items: Item[]): Item[] {
  const found = new Map<string, Item>();
  for (const item of items) if (item.id && !found.has(item.id)) found.set(item.id, item);
  return [...found.values()];
}

export interface Decision extends contract.LedgerRow {
  /** Its place in the ledger, which addresses name it by. */
  row: number;
}

export function readLedger(raw: unknown): Decision[] {
  const rows = contract.readLedgerChunk(raw) as Decision[];
  rows.forEach((one, row) => (one.row = row));
  return rows;
}

const MOST_LANES = 1000;
const DEEPEST = 50;

/** Every span is in a lane that is there. */
export function readTimeline(raw: unknown): contract.Timeline {
  const { lanes, spans } = contract.readTimelineChunk(raw);
  for (const span of spans) {
    while (lanes.length <= span.lane && lanes.length < MOST_LANES) lanes.push({ name: "", kind: "" });
  }
  const fit = spans.filter((span) => span.lane < lanes.length && span.seconds >= 0);
  return { lanes, spans: fit.map((span) => ({ ...span, depth: Math.min(span.depth, DEEPEST) })) };
}
