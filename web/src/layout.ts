/** Where the boxes and lines of the scheduler graph go. */

import { Graph, layout } from "@dagrejs/dagre";
import type { Schedule, ScheduleEdge, ScheduleGroup, ScheduleNode } from "./contract";
import { inLayers } from "./layers";
import { brief, bytes } from "./text";

export const NODE_HEIGHT = 42;
const MEMBER_GAP = 26;
const GROUP_PADDING = 14;
const GROUP_TITLE = 18;

// Nodes and edges together: beyond these numbers the engine takes too long to wait for.
const ENGINE_LIMIT = 260;
const STACK_LIMIT = 500;

export interface Point {
  x: number;
  y: number;
}

export interface Box extends Point {
  width: number;
  height: number;
}

export interface PlacedNode extends Box {
  node: ScheduleNode;
}

export interface PlacedGroup extends Box {
  group: ScheduleGroup;
}

export interface PlacedEdge {
  edge: ScheduleEdge;
  points: Point[];
  label: Point & { text: string };
}

export interface Picture {
  width: number;
  height: number;
  nodes: PlacedNode[];
  edges: PlacedEdge[];
  groups: PlacedGroup[];
}

export function nodeTitle(node: ScheduleNode): string {
  return brief(node.label || node.operations.join(", ") || node.kind || node.id, 34);
}

export function nodeWidth(node: ScheduleNode): number {
  const letters = Math.max(nodeTitle(node).length, brief(node.id, 34).length + bytes(node.bytes).length + 3);
  return Math.min(Math.max(letters * 7 + 24, 90), 280);
}

/** With groups each fused kernel is a box around its nodes, without them nothing is fused yet. */
export function arrange(schedule: Schedule, grouped: boolean): Picture {
  const groups = grouped ? groupsWithMembers(schedule) : [];
  try {
    if (schedule.nodes.length + schedule.edges.length <= ENGINE_LIMIT) return withEngine(schedule, groups);
    const units = unitsOf(schedule, groups);
    if (units.length + schedule.edges.length <= STACK_LIMIT) return inStacks(schedule, units);
  } catch {
    // A graph that the engine cannot cope with is still drawn.
  }
  return inLayers(schedule, groups);
}

function groupsWithMembers(schedule: Schedule): ScheduleGroup[] {
  const known = new Set(schedule.nodes.map((node) => node.id));
  const taken = new Set<string>();
  return schedule.groups.flatMap((group) => {
    const members = group.members.filter((member) => known.has(member) && !taken.has(member));
    members.forEach((member) => taken.add(member));
    return members.length > 1 ? [{ ...group, members }] : [];
  });
}

function emptyGraph(): Graph {
  const graph = new Graph({ compound: true, multigraph: true });
  graph.setGraph({ rankdir: "TB", nodesep: 28, ranksep: 44, edgesep: 14, marginx: 20, marginy: 20 });
  graph.setDefaultEdgeLabel(() => ({}));
  return graph;
}

// A group and a node may have the same name.
const groupKey = (group: ScheduleGroup): string => `group ${group.id}`;

function withEngine(schedule: Schedule, groups: ScheduleGroup[]): Picture {
  const graph = emptyGraph();
  for (const node of schedule.nodes) graph.setNode(node.id, { width: nodeWidth(node), height: NODE_HEIGHT });
  for (const group of groups) {
    graph.setNode(groupKey(group), {});
    for (const member of group.members) graph.setParent(member, groupKey(group));
  }
  schedule.edges.forEach((edge, place) => {
    graph.setEdge(edge.writer, edge.reader, { width: 48, height: 14, labelpos: "c" }, String(place));
  });
  layout(graph);
  const box = (name: string): Box => boxOf(graph, name);
  return {
    ...sizeOf(graph),
    nodes: schedule.nodes.map((node) => ({ node, ...box(node.id) })),
    edges: schedule.edges.map((edge, place) => laidEdge(graph, edge, place)),
    groups: groups.map((group) => ({ group, ...box(groupKey(group)) })),
  };
}

function boxOf(graph: Graph, name: string): Box {
  const { x, y, width, height } = graph.node(name) as unknown as Box;
  return { x, y, width, height };
}

function sizeOf(graph: Graph): { width: number; height: number } {
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return { width, height };
}

function laidEdge(graph: Graph, edge: ScheduleEdge, place: number): PlacedEdge {
  const laid = graph.edge(edge.writer, edge.reader, String(place)) as unknown as Point & { points: Point[] };
  return { edge, points: laid.points, label: { x: laid.x, y: laid.y, text: bytes(edge.bytes) } };
}

/** One box for the engine: a fused group, or a node on its own. */
interface Unit {
  name: string;
  group: ScheduleGroup | null;
  members: ScheduleNode[];
}

function unitsOf(schedule: Schedule, groups: ScheduleGroup[]): Unit[] {
  const byName = new Map(schedule.nodes.map((node) => [node.id, node]));
  const grouped = new Set(groups.flatMap((group) => group.members));
  const fused = groups.map((group) => ({
    name: groupKey(group),
    group,
    members: group.members.flatMap((member) => byName.get(member) ?? []),
  }));
  const alone = schedule.nodes.filter((node) => !grouped.has(node.id));
  return [...fused, ...alone.map((node) => ({ name: node.id, group: null, members: [node] }))];
}

/** Large graphs: the engine places whole groups, and the nodes of a group stand below each other. */
function inStacks(schedule: Schedule, units: Unit[]): Picture {
  const graph = emptyGraph();
  const home = new Map<string, string>();
  for (const unit of units) {
    graph.setNode(unit.name, unitSize(unit));
    for (const member of unit.members) home.set(member.id, unit.name);
  }
  for (const edge of schedule.edges) {
    const [from, to] = [home.get(edge.writer)!, home.get(edge.reader)!];
    if (from !== to) graph.setEdge(from, to, {});
  }
  layout(graph);
  const nodes = units.flatMap((unit) => placeMembers(unit, boxOf(graph, unit.name)));
  const placed = new Map(nodes.map((one) => [one.node.id, one]));
  return {
    ...sizeOf(graph),
    nodes,
    edges: schedule.edges.map((edge) => {
      const laid = graph.edge(home.get(edge.writer)!, home.get(edge.reader)!) as unknown as { points: Point[] } | undefined;
      return joined(edge, placed, (laid?.points ?? []).slice(1, -1));
    }),
    groups: units.flatMap(({ group, name }) => (group ? [{ group, ...boxOf(graph, name) }] : [])),
  };
}

function unitSize({ group, members }: Unit): { width: number; height: number } {
  const width = members.reduce((most, node) => Math.max(most, nodeWidth(node)), 0);
  const height = members.length * (NODE_HEIGHT + MEMBER_GAP) - MEMBER_GAP;
  if (!group) return { width, height };
  return { width: width + 4 * GROUP_PADDING, height: height + 2 * GROUP_PADDING + GROUP_TITLE };
}

function placeMembers({ group, members }: Unit, box: Box): PlacedNode[] {
  const top = box.y - box.height / 2 + (group ? GROUP_PADDING + GROUP_TITLE : 0);
  return members.map((node, place) => ({
    node,
    x: box.x,
    y: top + place * (NODE_HEIGHT + MEMBER_GAP) + NODE_HEIGHT / 2,
    width: nodeWidth(node),
    height: NODE_HEIGHT,
  }));
}

/** A line between two placed nodes, through given points. */
export function joined(edge: ScheduleEdge, placed: Map<string, PlacedNode>, through: Point[] = []): PlacedEdge {
  const from = placed.get(edge.writer)!;
  const to = placed.get(edge.reader)!;
  const start = { x: from.x, y: from.y + NODE_HEIGHT / 2 };
  const end = { x: to.x, y: to.y - NODE_HEIGHT / 2 };
  const middle = through[Math.floor(through.length / 2)] ?? { x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 };
  // In a stack, a line that passes other nodes goes around them.
  const skips = through.length === 0 && from.x === to.x && Math.abs(to.y - from.y) > NODE_HEIGHT + 2 * MEMBER_GAP;
  const around = skips ? [{ x: from.x - from.width / 2 - GROUP_PADDING, y: middle.y }] : through;
  return { edge, points: [start, ...around, end], label: { ...(around[0] ?? middle), text: bytes(edge.bytes) } };
}
