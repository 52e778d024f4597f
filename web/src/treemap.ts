/** A treemap without the browser: rectangles whose areas are values, as near to squares as can be. */

export interface Rectangle {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** One rectangle for each value, which are sorted from large to small and above 0. */
export function squarify(values: number[], room: Rectangle): Rectangle[] {
  const total = values.reduce((sum, value) => sum + value, 0);
  if (total <= 0) return values.map(() => ({ ...room, width: 0, height: 0 }));
  const scale = (room.width * room.height) / total;
  const areas = values.map((value) => value * scale);
  const placed: Rectangle[] = [];
  let left = { ...room };
  for (let first = 0; first < areas.length; ) {
    const side = Math.min(left.width, left.height);
    let last = first + 1;
    while (last < areas.length && worst(areas.slice(first, last + 1), side) <= worst(areas.slice(first, last), side)) last += 1;
    left = placeRow(areas.slice(first, last), left, placed);
    first = last;
  }
  return placed;
}

/** How far the longest rectangle of a row is from a square. */
function worst(row: number[], side: number): number {
  const sum = row.reduce((all, area) => all + area, 0);
  if (side <= 0 || sum <= 0) return Infinity;
  const thickness = sum / side;
  return row.reduce((most, area) => Math.max(most, thickness ** 2 / area, area / thickness ** 2), 0);
}

/** Places a row along the shorter side; returns the room that is left. */
function placeRow(row: number[], room: Rectangle, placed: Rectangle[]): Rectangle {
  const sum = row.reduce((all, area) => all + area, 0);
  const upright = room.width >= room.height;
  const side = upright ? room.height : room.width;
  const thickness = side > 0 ? sum / side : 0;
  let at = upright ? room.y : room.x;
  for (const area of row) {
    const length = thickness > 0 ? area / thickness : 0;
    placed.push(
      upright
        ? { x: room.x, y: at, width: thickness, height: length }
        : { x: at, y: room.y, width: length, height: thickness },
    );
    at += length;
  }
  return upright
    ? { ...room, x: room.x + thickness, width: room.width - thickness }
    : { ...room, y: room.y + thickness, height: room.height - thickness };
}
