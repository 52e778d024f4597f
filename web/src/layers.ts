/** A plain arrangement for graphs that are too large for the layout engine. */

import type { Schedule, ScheduleGroup, ScheduleNode } from "./contract";
import { NODE_HEIGHT, type Picture, type PlacedGroup, type PlacedNode, joined, nodeWidth } from "./layout";

const LAYER_GAP = 68;
const NODE_GAP = 26;
/** A layer of a thousand nodes is folded, so that the picture stays in proportion. */
const LAYER_WIDTH = 24;

/** Each node below the nodes that it needs, and near to them. */
export function inLayers(schedule: Schedule, groups: ScheduleGroup[]): Picture {
  const layers = layersOf(schedule);
  const needs = new Map<string, string[]>();
  for (const edge of schedule.edges) needs.set(edge.reader, [...(needs.get(edge.reader) ?? []), edge.writer]);
  const placed = new Map<string, PlacedNode>();
  let y = NODE_HEIGHT;
  for (const nodes of layers) y = placeLayer(nodes, needs, placed, y);
  const left = [...placed.values()].reduce((least, node) => Math.min(least, node.x - node.width / 2), 0) - 20;
  for (const node of placed.values()) node.x -= left;
  const nodes = [...placed.values()];
  return {
    width: nodes.reduce((most, node) => Math.max(most, node.x + node.width / 2), 0) + 20,
    height: y,
    nodes,
    edges: schedule.edges.map((edge) => joined(edge, placed)),
    groups: groups.map((group) => around(group, placed)),
  };
}

function layersOf(schedule: Schedule): ScheduleNode[][] {
  const ranks = rankNodes(schedule);
  const layers: ScheduleNode[][] = [];
  for (const node of schedule.nodes) (layers[ranks.get(node.id)!] ??= []).push(node);
  return layers.filter((layer) => layer !== undefined);
}

function rankNodes(schedule: Schedule): Map<string, number> {
  const ranks = new Map(schedule.nodes.map((node) => [node.id, 0]));
  const place = new Map(schedule.nodes.map((node, number) => [node.id, number]));
  // Nodes come in an order of execution, so that one walk over the edges by their source is enough.
  const edges = [...schedule.edges].sort((left, right) => place.get(left.writer)! - place.get(right.writer)!);
  for (const edge of edges) {
    if (place.get(edge.writer)! >= place.get(edge.reader)!) continue;
    ranks.set(edge.reader, Math.max(ranks.get(edge.reader)!, ranks.get(edge.writer)! + 1));
  }
  return ranks;
}

/** Places one layer around x = 0, ordered by where the nodes above are; returns where the next begins. */
function placeLayer(
  nodes: ScheduleNode[],
  needs: Map<string, string[]>,
  placed: Map<string, PlacedNode>,
  top: number,
): number {
  const wanted = new Map(nodes.map((node) => [node.id, meanPlace(needs.get(node.id) ?? [], placed)]));
  nodes.sort((left, right) => wanted.get(left.id)! - wanted.get(right.id)!);
  let y = top;
  for (let first = 0; first < nodes.length; first += LAYER_WIDTH) {
    const row = nodes.slice(first, first + LAYER_WIDTH);
    let x = -row.reduce((sum, node) => sum + nodeWidth(node) + NODE_GAP, -NODE_GAP) / 2;
    for (const node of row) {
      const width = nodeWidth(node);
      placed.set(node.id, { node, x: x + width / 2, y, width, height: NODE_HEIGHT });
      x += width + NODE_GAP;
    }
    y += NODE_HEIGHT + LAYER_GAP;
  }
  return y;
}

function meanPlace(names: string[], placed: Map<string, PlacedNode>): number {
  const places = names.flatMap((name) => placed.get(name)?.x ?? []);
  return places.length ? places.reduce((sum, x) => sum + x, 0) / places.length : 0;
}

function around(group: ScheduleGroup, placed: Map<string, PlacedNode>): PlacedGroup {
  const boxes = group.members.map((member) => placed.get(member)!);
  const left = Math.min(...boxes.map((box) => box.x - box.width / 2)) - 12;
  const right = Math.max(...boxes.map((box) => box.x + box.width / 2)) + 12;
  const top = Math.min(...boxes.map((box) => box.y - box.height / 2)) - 20;
  const bottom = Math.max(...boxes.map((box) => box.y + box.height / 2)) + 12;
  return { group, x: (left + right) / 2, y: (top + bottom) / 2, width: right - left, height: bottom - top };
}
