/** What is drawn of a graph: in full where it can be read, as plain shapes from afar. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { Box, Picture, PlacedEdge, PlacedGroup, PlacedNode, Point } from "../layout";
import { nodeTitle } from "../layout";
import { type Area, partOf } from "../sight";
import { brief, bytes } from "../text";

interface Properties {
  picture: Picture;
  area: Area;
  chosen: Set<string>;
  onChoose: (id: string | null) => void;
}

/** The node that the Tab key leads to. */
function tabStop(picture: Picture, chosen: Set<string>): string {
  return [...chosen][0] ?? picture.nodes[0]?.node.id ?? "";
}

/** Only what is in sight; moving and zooming a little change only what is around it. */
export function DrawnGraph({ picture, area, chosen, onChoose }: Properties): JSX.Element {
  const stop = tabStop(picture, chosen);
  const { left, top, right, bottom } = area;
  const part = useMemo(
    () => partOf(picture, area, new Set([...chosen, stop])),
    [picture, left, top, right, bottom, [...chosen].join("\n")],
  );
  const lines = useMemo(
    () => (
      <>
        {part.groups.map((placed) => (
          <GroupBox key={placed.group.id} placed={placed} />
        ))}
        {part.edges.map((placed, place) => (
          <EdgeLine key={place} placed={placed} />
        ))}
        {part.groups.map((placed) => (
          <GroupName key={placed.group.id} placed={placed} />
        ))}
      </>
    ),
    [part],
  );
  return (
    <>
      {lines}
      <NodeBoxes picture={picture} shown={part.nodes} chosen={chosen} onChoose={onChoose} />
    </>
  );
}

/** All of it in a handful of shapes; the chosen nodes are still nodes. */
export function OutlinedGraph({ picture, chosen, onChoose }: Properties): JSX.Element {
  const stop = tabStop(picture, chosen);
  const shapes = useMemo(
    () => (
      <>
        <g class="group">
          <path d={picture.groups.map(outline).join("")} />
        </g>
        <g class="edge">
          <path d={picture.edges.map(({ points }) => curve(points)).join("")} />
        </g>
        <g class="outlines">
          <path d={picture.nodes.map(outline).join("")} />
        </g>
      </>
    ),
    [picture],
  );
  const shown = picture.nodes.filter(({ node }) => chosen.has(node.id) || node.id === stop);
  return (
    <>
      {shapes}
      <NodeBoxes picture={picture} shown={shown} chosen={chosen} onChoose={onChoose} />
    </>
  );
}

function outline({ x, y, width, height }: Box): string {
  return `M${x - width / 2} ${y - height / 2}h${width}v${height}h${-width}z`;
}

interface BoxesProperties {
  picture: Picture;
  shown: PlacedNode[];
  chosen: Set<string>;
  onChoose: (id: string | null) => void;
}

function NodeBoxes({ picture, shown, chosen, onChoose }: BoxesProperties): JSX.Element {
  const stop = tabStop(picture, chosen);
  return (
    <>
      {shown.map((placed) => (
        <NodeBox
          key={placed.node.id}
          placed={placed}
          chosen={chosen.has(placed.node.id)}
          reachable={placed.node.id === stop}
          onChoose={onChoose}
          onStep={(key) => step(picture, placed, key, onChoose)}
        />
      ))}
    </>
  );
}

/** Arrow keys lead along edges, and to the neighbour at the same height. */
function step(picture: Picture, placed: PlacedNode, key: string, onChoose: (id: string) => void): boolean {
  const target = neighbour(picture, placed, key);
  if (!target) return key.startsWith("Arrow");
  onChoose(target);
  window.requestAnimationFrame(() => document.querySelector<SVGGElement>(".node[tabindex='0']")?.focus());
  return true;
}

function neighbour(picture: Picture, placed: PlacedNode, key: string): string | undefined {
  const { id } = placed.node;
  if (key === "ArrowDown") return picture.edges.find(({ edge }) => edge.writer === id)?.edge.reader;
  if (key === "ArrowUp") return picture.edges.find(({ edge }) => edge.reader === id)?.edge.writer;
  const sign = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (!sign) return undefined;
  const beside = picture.nodes.filter((one) => sign * (one.x - placed.x) > 0);
  const distance = (one: PlacedNode): number => Math.abs(one.x - placed.x) + 4 * Math.abs(one.y - placed.y);
  return beside.sort((left, right) => distance(left) - distance(right))[0]?.node.id;
}

function GroupBox({ placed }: { placed: PlacedGroup }): JSX.Element {
  const { group, name, x, y, width, height } = placed;
  return (
    <g class="group">
      <rect x={x - width / 2} y={y - height / 2} width={width} height={height} rx="8" />
      <title>{brief(`${group.kind} ${group.id}: ${name}`)}</title>
    </g>
  );
}

/** Above the lines, so that it can be read. */
function GroupName({ placed }: { placed: PlacedGroup }): JSX.Element {
  const { name, x, y, width, height } = placed;
  return (
    <text class="group-name" x={x - width / 2 + 6} y={y - height / 2 + 13}>
      {brief(name, Math.max(Math.floor(width / 6.7) - 3, 8))}
    </text>
  );
}

function EdgeLine({ placed }: { placed: PlacedEdge }): JSX.Element {
  const { edge, points, label } = placed;
  return (
    <g class={`edge ${edge.inside ? "inside" : ""}`}>
      <path d={curve(points)} marker-end="url(#arrow)" />
      {label.text && (
        <text x={label.x} y={label.y + 3} text-anchor="middle">
          {label.text}
        </text>
      )}
      <title>{brief(`${edge.buffer}: ${edge.writer} to ${edge.reader}, ${bytes(edge.bytes) || "bytes unknown"}`)}</title>
    </g>
  );
}

function curve(points: Point[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let path = `M${first.x} ${first.y}`;
  for (let place = 0; place < rest.length; place += 1) {
    const point = rest[place]!;
    const next = rest[place + 1];
    if (!next) path += ` L${point.x} ${point.y}`;
    else path += ` Q${point.x} ${point.y} ${(point.x + next.x) / 2} ${(point.y + next.y) / 2}`;
  }
  return path;
}

interface NodeProperties {
  placed: PlacedNode;
  chosen: boolean;
  reachable: boolean;
  onChoose: (id: string) => void;
  onStep: (key: string) => boolean;
}

function NodeBox({ placed, chosen, reachable, onChoose, onStep }: NodeProperties): JSX.Element {
  const { node, x, y, width, height } = placed;
  const note = [brief(node.id, 34), bytes(node.bytes)].filter(Boolean).join(", ");
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter" || event.key === " ") onChoose(node.id);
    else if (!onStep(event.key)) return;
    event.preventDefault();
  };
  return (
    <g
      class={`node ${kindClass(node.kind)} ${chosen ? "chosen" : ""}`}
      role="button"
      tabindex={reachable ? 0 : -1}
      aria-pressed={chosen}
      data-node={node.id}
      onClick={() => onChoose(node.id)}
      onKeyDown={onKeyDown}
    >
      <rect x={x - width / 2} y={y - height / 2} width={width} height={height} rx="5" />
      <text class="node-title" x={x} y={y - 3} text-anchor="middle">
        {nodeTitle(node)}
      </text>
      <text class="node-note" x={x} y={y + 13} text-anchor="middle">
        {note}
      </text>
      <title>{brief(`${node.kind} ${node.id}\n${node.operations.join(", ")}`)}</title>
    </g>
  );
}

function kindClass(kind: string): string {
  if (/extern|fallback/i.test(kind)) return "extern";
  return /nop/i.test(kind) ? "nop" : "";
}
