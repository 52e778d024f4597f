/** Boxes in layers: each below what it needs, near to it, with lines that go around other boxes. */

import type { Box, Point } from "./layout";

/** A layer of a thousand boxes is folded, so that the picture stays in proportion. */
const LAYER_WIDTH = 24;
const LAYER_GAP = 56;
const BOX_GAP = 28;
const BEND_WIDTH = 14;
/** Lines are led around boxes as long as that costs little: long lines of large graphs are straight. */
const MOST_BENDS = 4000;
const SWEEPS = 4;
const MARGIN = 20;

export interface Link {
  from: number;
  to: number;
}

export interface Layered {
  width: number;
  height: number;
  boxes: Box[];
  /** For each link, the points between its two boxes. */
  bends: Point[][];
}

/** A box, or a bend of a line that passes this layer. */
interface Cell {
  width: number;
  x: number;
  above: Cell[];
  below: Cell[];
  /** Its place in its layer. */
  place: number;
}

interface Size {
  width: number;
  height: number;
}

/** Every step is linear in boxes, links and bends, apart from sorting. */
export function inLayers(sizes: Size[], links: Link[]): Layered {
  const ranks = folded(nearReaders(rankBoxes(sizes.length, links), links));
  const cells = sizes.map(({ width }) => cell(width));
  const layers: Cell[][] = [];
  cells.forEach((one, box) => (layers[ranks[box]!] ??= []).push(one));
  const bends = addBends(links, ranks, cells, layers);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) reorder(layers, sweep % 2 === 0);
  place(layers);
  const tops = topsOf(layers.length, sizes, ranks);
  const left = layers.flat().reduce((least, one) => Math.min(least, one.x - one.width / 2), 0) - MARGIN;
  const boxes = cells.map((one, box): Box => {
    const { top, height } = tops[ranks[box]!]!;
    return { ...sizes[box]!, x: one.x - left, y: top + height / 2 };
  });
  return {
    boxes,
    width: boxes.reduce((most, box) => Math.max(most, box.x + box.width / 2), 0) + MARGIN,
    height: tops.reduce((most, { top, height }) => Math.max(most, top + height), 0) + MARGIN,
    bends: bends.map((line) =>
      line.map(({ rank, bend }) => ({ x: bend.x - left, y: tops[rank]!.top + tops[rank]!.height / 2 })),
    ),
  };
}

function cell(width: number): Cell {
  return { width, x: 0, above: [], below: [], place: 0 };
}

/** How many links lead to a box at most. Links that close a circle do not count. */
function rankBoxes(count: number, links: Link[]): number[] {
  const ranks = new Array<number>(count).fill(0);
  const waits = new Array<number>(count).fill(0);
  const readers: number[][] = Array.from({ length: count }, () => []);
  for (const { from, to } of links) {
    readers[from]!.push(to);
    waits[to]! += 1;
  }
  const ready: number[] = [];
  const done = new Array<boolean>(count).fill(false);
  const finish = (box: number): void => {
    done[box] = true;
    for (const reader of readers[box]!) {
      if (done[reader]) continue;
      ranks[reader] = Math.max(ranks[reader]!, ranks[box]! + 1);
      waits[reader]! -= 1;
      if (waits[reader] === 0) ready.push(reader);
    }
  };
  for (let box = 0; box < count; box += 1) if (waits[box] === 0) ready.push(box);
  for (let next = 0, left = 0; ; next += 1) {
    while (next < ready.length && done[ready[next]!]) next += 1;
    if (next < ready.length) finish(ready[next]!);
    else {
      // Everything that is left waits for itself.
      while (left < count && done[left]) left += 1;
      if (left === count) return ranks;
      ready.push(left);
      next -= 1;
    }
  }
}

/** What needs nothing, such as a constant, stands just above what reads it first. */
function nearReaders(ranks: number[], links: Link[]): number[] {
  const first = new Map<number, number>();
  for (const { from, to } of links) first.set(from, Math.min(first.get(from) ?? Infinity, ranks[to]!));
  return ranks.map((rank, box) => (rank === 0 ? Math.max((first.get(box) ?? 1) - 1, 0) : rank));
}

/** Ranks in which no layer has more boxes than fit beside each other. */
function folded(ranks: number[]): number[] {
  const counts: number[] = [];
  for (const rank of ranks) counts[rank] = (counts[rank] ?? 0) + 1;
  const first: number[] = [];
  let next = 0;
  for (let rank = 0; rank < counts.length; rank += 1) {
    first[rank] = next;
    next += Math.max(Math.ceil((counts[rank] ?? 0) / LAYER_WIDTH), 1);
  }
  const placed: number[] = [];
  return ranks.map((rank) => {
    const before = placed[rank] ?? 0;
    placed[rank] = before + 1;
    return first[rank]! + Math.floor(before / LAYER_WIDTH);
  });
}

interface Bend {
  rank: number;
  bend: Cell;
}

function addBends(links: Link[], ranks: number[], cells: Cell[], layers: Cell[][]): Bend[][] {
  const span = ({ from, to }: Link): number => ranks[to]! - ranks[from]!;
  const bends: Bend[][] = links.map(() => []);
  const shortest = links.map((_, link) => link).sort((left, right) => span(links[left]!) - span(links[right]!));
  let spent = 0;
  for (const number of shortest) {
    const link = links[number]!;
    spent += Math.max(span(link) - 1, 0);
    let above = cells[link.from]!;
    for (let rank = ranks[link.from]! + 1; rank < ranks[link.to]! && spent <= MOST_BENDS; rank += 1) {
      const bend = cell(BEND_WIDTH);
      layers[rank]!.push(bend);
      bends[number]!.push({ rank, bend });
      connect(above, bend);
      above = bend;
    }
    connect(above, cells[link.to]!);
  }
  return bends;
}

function connect(above: Cell, below: Cell): void {
  above.below.push(below);
  below.above.push(above);
}

/** Sorts each layer by where the neighbours of its cells are: fewer lines cross. */
function reorder(layers: Cell[][], downwards: boolean): void {
  for (const layer of downwards ? layers : [...layers].reverse()) {
    const wanted = new Map(
      layer.map((one) => [one, mean(downwards ? one.above : one.below, (near) => near.place) ?? one.place]),
    );
    layer.sort((left, right) => wanted.get(left)! - wanted.get(right)!);
    const middle = (layer.length - 1) / 2;
    layer.forEach((one, at) => (one.place = at - middle));
  }
}

/** Cells want to be below, then above, the middle of their neighbours, and must not overlap. */
function place(layers: Cell[][]): void {
  for (const layer of layers) settle(layer, (one) => one.above);
  for (const layer of [...layers].reverse()) settle(layer, (one) => one.below);
  for (const layer of layers) settle(layer, (one) => [...one.above, ...one.below]);
}

/** Packed from the left and packed from the right keep the gaps; so does the mean of both. */
function settle(layer: Cell[], near: (one: Cell) => Cell[]): void {
  const wanted = layer.map((one) => mean(near(one), (other) => other.x) ?? one.x);
  const apart = (left: number): number => (layer[left]!.width + layer[left + 1]!.width) / 2 + BOX_GAP;
  const fromLeft = [...wanted];
  for (let at = 1; at < layer.length; at += 1) fromLeft[at] = Math.max(wanted[at]!, fromLeft[at - 1]! + apart(at - 1));
  const fromRight = [...wanted];
  for (let at = layer.length - 2; at >= 0; at -= 1) fromRight[at] = Math.min(wanted[at]!, fromRight[at + 1]! - apart(at));
  layer.forEach((one, at) => (one.x = (fromLeft[at]! + fromRight[at]!) / 2));
}

function mean(cells: Cell[], value: (one: Cell) => number): number | null {
  if (cells.length === 0) return null;
  return cells.reduce((sum, one) => sum + value(one), 0) / cells.length;
}

function topsOf(layers: number, sizes: Size[], ranks: number[]): { top: number; height: number }[] {
  const heights = new Array<number>(layers).fill(0);
  sizes.forEach(({ height }, box) => (heights[ranks[box]!] = Math.max(heights[ranks[box]!]!, height)));
  let top = MARGIN;
  return heights.map((height) => {
    const here = { top, height };
    top += height + LAYER_GAP;
    return here;
  });
}
