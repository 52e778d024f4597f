/** Where run time goes: modules, and in them kernels, as areas. */

import type { JSX } from "preact";
import type { ModuleKernel } from "../contract";
import { type Cost, type ModuleNode, groupAlike, isMeasured } from "../modules";
import { address } from "../route";
import { amount, brief, bytes, duration, plural } from "../text";
import { type Rectangle, squarify } from "../treemap";

/** About as wide as on a usual screen, so that text has its size. */
const WIDTH = 780;
const MOST_HEIGHT = 330;
/** A few large areas say no more than a few small ones. */
const HEIGHT_OF_TILE = 60;
const TITLE = 17;
const EDGE = 2;
/** Smaller ones would be no more than a line. */
const LEAST = 6;
/** In one module: more could be told apart neither by eye nor by Tab key. */
const MOST_TILES = 40;

interface Tile {
  title: string;
  /** Made for those that are drawn: of thousands, a few dozen. */
  about: () => string;
  link: () => string;
  value: number;
  hue: number;
  inner: Tile[];
}

export function RunTreemap({ roots }: { roots: ModuleNode[] }): JSX.Element | null {
  const measured = isMeasured(roots);
  const tiles = trim(roots.flatMap((root) => tilesOf(root, measured, 0)));
  const total = tiles.reduce((sum, tile) => sum + tile.value, 0);
  if (total <= 0) return null;
  const height = Math.min(MOST_HEIGHT, HEIGHT_OF_TILE * (1 + countInnermost(tiles)));
  const what = measured ? "measured time" : "modelled bytes";
  return (
    <svg
      class="treemap"
      viewBox={`0 0 ${WIDTH} ${height}`}
      role="group"
      aria-label={`Modules and their kernels, by ${what}`}
    >
      <Tiles tiles={tiles} room={{ x: 0, y: 0, width: WIDTH, height }} scale={{ total, measured }} />
    </svg>
  );
}

function countInnermost(tiles: Tile[]): number {
  return tiles.reduce((sum, tile) => sum + (tile.inner.length ? countInnermost(tile.inner) : 1), 0);
}

function trim(tiles: Tile[]): Tile[] {
  return tiles.filter((tile) => tile.value > 0).sort((left, right) => right.value - left.value);
}

/** What is in a module: kernels that no part of it has alone, and its parts, those made alike as one. */
function tilesOf(node: ModuleNode, measured: boolean, depth: number): Tile[] {
  const own = node.kernels.map((kernel, place) => kernelTile(kernel, measured, depth + place));
  const parts = groupAlike(node.parts).map((group): Tile => {
    const first = group.nodes[0]!;
    const count = group.nodes.length;
    return {
      title: count > 1 ? `${group.label} ×${count}` : group.label,
      about: () => `${group.label}${count > 1 ? `, ${count} of ${first.module.kind}` : ` ${first.module.kind}`}: ${told(group.cost, measured)}`,
      link: () => moduleAddress(first),
      value: valueOf(group.cost, measured),
      hue: first.place,
      inner: merged(group.nodes.flatMap((one) => tilesOf(one, measured, depth + 1))),
    };
  });
  return trim([...own, ...parts]);
}

/** The same part of modules that are made alike is one area: what it leads to is the first of them. */
function merged(tiles: Tile[]): Tile[] {
  const named = new Map<string, Tile[]>();
  for (const tile of tiles) named.set(tile.title, [...(named.get(tile.title) ?? []), tile]);
  const found = [...named.values()].map((same): Tile => {
    const [first] = same as [Tile, ...Tile[]];
    if (same.length === 1) return first;
    return {
      ...first,
      title: `${first.title} ×${same.length}`,
      about: () => `${same.length} alike, of which the first: ${first.about()}; all of them`,
      value: same.reduce((sum, tile) => sum + tile.value, 0),
      inner: merged(same.flatMap((tile) => tile.inner)),
    };
  });
  return trim(found);
}

function kernelTile(kernel: ModuleKernel, measured: boolean, hue: number): Tile {
  const cost = { seconds: kernel.seconds ?? 0, bytes: kernel.bytes ?? 0 };
  return {
    title: kernel.name,
    about: () => `${kernel.name}, ${plural(kernel.calls, "call")} per call of its graph: ${told(cost, measured)}`,
    link: () => address("explorer", { graph: kernel.graph, kernel: kernel.id }),
    value: valueOf(cost, measured),
    hue,
    inner: [],
  };
}

export function moduleAddress(node: ModuleNode): string {
  return address("explorer", { graph: node.module.graphs[0], module: node.module.path });
}

export function valueOf(cost: Cost, measured: boolean): number {
  return measured ? cost.seconds : cost.bytes;
}

export function told(cost: Cost, measured: boolean): string {
  return measured ? `${duration(cost.seconds)}, measured` : `at least ${bytes(cost.bytes)}, modelled`;
}

/** What the areas stand for. */
interface Scale {
  total: number;
  measured: boolean;
}

/** The largest, and all others as one that leads to the table of kernels. */
function largest(tiles: Tile[], measured: boolean): Tile[] {
  if (tiles.length <= MOST_TILES) return tiles;
  const rest = tiles.slice(MOST_TILES - 1);
  const value = rest.reduce((sum, tile) => sum + tile.value, 0);
  const more = {
    title: `${amount(rest.length)} more`,
    about: () => `${amount(rest.length)} more, each smaller than those shown: ${told({ seconds: value, bytes: value }, measured)}`,
    link: () => address("kernels"),
    value,
    hue: 0,
    inner: [],
  };
  return trim([...tiles.slice(0, MOST_TILES - 1), more]);
}

function Tiles({ tiles, room, scale }: { tiles: Tile[]; room: Rectangle; scale: Scale }): JSX.Element {
  const shown = largest(tiles, scale.measured);
  const placed = squarify(shown.map((tile) => tile.value), room);
  return (
    <>
      {shown.map((tile, place) => {
        const where = placed[place]!;
        if (where.width < LEAST || where.height < LEAST) return null;
        return <OneTile key={place} tile={tile} where={where} scale={scale} />;
      })}
    </>
  );
}

function OneTile({ tile, where, scale }: { tile: Tile; where: Rectangle; scale: Scale }): JSX.Element {
  const share = `${Math.round((100 * tile.value) / scale.total)} %`;
  const room = { x: where.x + EDGE, y: where.y + TITLE, width: where.width - 2 * EDGE, height: where.height - TITLE - EDGE };
  const opens = tile.inner.length > 0 && room.width > 3 * LEAST && room.height > 3 * LEAST;
  const about = brief(`${tile.about()}, ${share}`, 300);
  const letters = Math.floor((where.width - 8) / 6.6);
  return (
    <>
      <a href={tile.link()} aria-label={about}>
        <title>{about}</title>
        <rect
          class={tile.inner.length ? "tile" : "tile tile-kernel"}
          style={{ "--tile": `var(--stage-${tile.hue % 16})` }}
          x={where.x + 0.5}
          y={where.y + 0.5}
          width={Math.max(where.width - 1, 1)}
          height={Math.max(where.height - 1, 1)}
        />
        {letters > 4 && where.height > 14 && (
          <text x={where.x + 5} y={where.y + 12.5}>
            {brief(tile.title, Math.max(letters - 6, 4))}
            {letters > 14 && <tspan class="tile-share"> {share}</tspan>}
          </text>
        )}
      </a>
      {opens && <Tiles tiles={tile.inner} room={room} scale={scale} />}
    </>
  );
}
