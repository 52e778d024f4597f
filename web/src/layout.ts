/** Where the boxes and lines of the scheduler graph go. */

import type { Schedule, ScheduleEdge, ScheduleGroup, ScheduleNode } from "./contract";
import { type Link, inLayers } from "./layers";
import { brief, bytes } from "./text";

export const NODE_HEIGHT = 42;
const MEMBER_GAP = 26;
const GROUP_PADDING = 14;
const GROUP_TITLE = 18;

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
  /** What the box holds: a kernel, or which part of one. */
  name: string;
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

/** With groups each fused node is a box around its parts, without them nothing is fused yet. */
export function arrange(schedule: Schedule, grouped: boolean): Picture {
  const units = unitsOf(schedule, grouped ? groupsWithMembers(schedule) : []);
  const home = new Map<string, number>();
  units.forEach((unit, place) => unit.members.forEach((member) => home.set(member.id, place)));
  const { links, linkOf } = linksOf(schedule, home);
  const { width, height, boxes, bends } = inLayers(units.map(unitSize), links);
  const nodes = units.flatMap((unit, place) => placeMembers(unit, boxes[place]!));
  const placed = new Map(nodes.map((one) => [one.node.id, { ...one, unit: boxes[home.get(one.node.id)!]! }]));
  return {
    width,
    height,
    nodes,
    edges: schedule.edges.map((edge, place) => joined(edge, placed, bends[linkOf[place]!] ?? [])),
    groups: units.flatMap(({ group }, place) =>
      group ? [{ group, name: groupName(schedule, group), ...boxes[place]! }] : [],
    ),
  };
}

/** A C++ function holds one loop after another, each of them a fused node. */
function groupName(schedule: Schedule, { id, kernel, members }: ScheduleGroup): string {
  const all = schedule.nodes.filter((node) => kernel && node.kernel === kernel).length;
  return all > members.length ? `${members.length} of ${all} nodes of ${kernel}` : kernel || id;
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

/** One box of the arrangement: a fused group, or a node on its own. */
interface Unit {
  group: ScheduleGroup | null;
  members: ScheduleNode[];
}

/** In the order of the nodes. */
function unitsOf(schedule: Schedule, groups: ScheduleGroup[]): Unit[] {
  const byName = new Map(schedule.nodes.map((node) => [node.id, node]));
  const groupOf = new Map(groups.flatMap((group) => group.members.map((member) => [member, group] as const)));
  return schedule.nodes.flatMap((node): Unit[] => {
    const group = groupOf.get(node.id);
    if (!group) return [{ group: null, members: [node] }];
    if (group.members[0] !== node.id) return [];
    return [{ group, members: group.members.map((member) => byName.get(member)!) }];
  });
}

/** Links between units, each once, and the link of each edge: -1 inside of a unit. */
function linksOf(schedule: Schedule, home: Map<string, number>): { links: Link[]; linkOf: number[] } {
  const known = new Map<string, number>();
  const links: Link[] = [];
  const linkOf = schedule.edges.map((edge) => {
    const [from, to] = [home.get(edge.writer)!, home.get(edge.reader)!];
    if (from === to) return -1;
    const key = `${from} ${to}`;
    if (!known.has(key)) known.set(key, links.push({ from, to }) - 1);
    return known.get(key)!;
  });
  return { links, linkOf };
}

function unitSize({ group, members }: Unit): { width: number; height: number } {
  const width = members.reduce((most, node) => Math.max(most, nodeWidth(node)), 0);
  const height = members.length * (NODE_HEIGHT + MEMBER_GAP) - MEMBER_GAP;
  if (!group) return { width, height };
  return { width: width + 4 * GROUP_PADDING, height: height + 2 * GROUP_PADDING + GROUP_TITLE };
}

/** The nodes of a group stand below each other. */
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

/** A node, and the box of its unit. */
interface Member extends PlacedNode {
  unit: Box;
}

/** A line between two placed nodes, through given points; in a stack it goes around other nodes. */
function joined(edge: ScheduleEdge, placed: Map<string, Member>, through: Point[]): PlacedEdge {
  const from = placed.get(edge.writer)!;
  const to = placed.get(edge.reader)!;
  const start = { x: from.x, y: from.y + NODE_HEIGHT / 2 };
  const end = { x: to.x, y: to.y - NODE_HEIGHT / 2 };
  const around = from.unit === to.unit ? beside(from, to) : [...wayOut(from), ...through, ...wayIn(to)];
  const middle = { x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 };
  const label = around[Math.floor(around.length / 2)] ?? middle;
  return { edge, points: [start, ...around, end], label: { ...label, text: bytes(edge.bytes) } };
}

/** Left of all nodes of a stack. */
function lane({ unit }: Member): number {
  return unit.x - unit.width / 2 + GROUP_PADDING;
}

const HALF_GAP = MEMBER_GAP / 2;

function beside(from: Member, to: Member): Point[] {
  if (Math.abs(to.y - from.y) <= NODE_HEIGHT + 2 * MEMBER_GAP) return [];
  return [
    { x: lane(from), y: from.y + NODE_HEIGHT / 2 + HALF_GAP },
    { x: lane(to), y: to.y - NODE_HEIGHT / 2 - HALF_GAP },
  ];
}

function wayOut(from: Member): Point[] {
  const bottom = from.unit.y + from.unit.height / 2;
  if (bottom - from.y <= NODE_HEIGHT + MEMBER_GAP) return [];
  return [
    { x: lane(from), y: from.y + NODE_HEIGHT / 2 + HALF_GAP },
    { x: lane(from), y: bottom },
  ];
}

function wayIn(to: Member): Point[] {
  const top = to.unit.y - to.unit.height / 2;
  if (to.y - top <= NODE_HEIGHT + MEMBER_GAP + GROUP_TITLE) return [];
  return [
    { x: lane(to), y: top },
    { x: lane(to), y: to.y - NODE_HEIGHT / 2 - HALF_GAP },
  ];
}
