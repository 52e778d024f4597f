/** Which part of a picture is drawn: what can be seen, and a little around it. */

import type { Box, Picture, PlacedEdge, Point } from "./layout";

/** How a picture is moved and magnified. */
export interface View extends Point {
  scale: number;
}

export interface Frame {
  width: number;
  height: number;
}

export interface Area {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** The area grows in steps, so that moving a little draws nothing anew. */
const STEP = 400;

export function areaInSight(view: View, frame: Frame): Area {
  const step = STEP / view.scale;
  return {
    left: (Math.floor(-view.x / view.scale / step) - 1) * step,
    top: (Math.floor(-view.y / view.scale / step) - 1) * step,
    right: (Math.ceil((frame.width - view.x) / view.scale / step) + 1) * step,
    bottom: (Math.ceil((frame.height - view.y) / view.scale / step) + 1) * step,
  };
}

/** The part of a picture that meets an area; `kept` are nodes that are drawn wherever they are. */
export function partOf(picture: Picture, area: Area, kept: ReadonlySet<string>): Picture {
  return {
    ...picture,
    nodes: picture.nodes.filter((placed) => kept.has(placed.node.id) || meets(area, placed)),
    groups: picture.groups.filter((placed) => meets(area, placed)),
    edges: picture.edges.filter((placed) => passes(area, placed)),
  };
}

function meets(area: Area, { x, y, width, height }: Box): boolean {
  return (
    x + width / 2 >= area.left && x - width / 2 <= area.right && y + height / 2 >= area.top && y - height / 2 <= area.bottom
  );
}

function passes(area: Area, { points }: PlacedEdge): boolean {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y } of points) {
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  return right >= area.left && left <= area.right && bottom >= area.top && top <= area.bottom;
}
