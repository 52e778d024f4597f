/** A picture that can be moved, zoomed and walked through with the keyboard. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Picture, type PlacedEdge, type PlacedGroup, type PlacedNode, nodeTitle } from "../layout";
import { brief, bytes } from "../text";

interface View {
  x: number;
  y: number;
  scale: number;
}

interface Properties {
  picture: Picture;
  chosen: Set<string>;
  onChoose: (id: string | null) => void;
}

const SMALLEST = 0.04;
const LARGEST = 3;
const LEGIBLE = 0.8;

export function Drawing({ picture, chosen, onChoose }: Properties): JSX.Element {
  const svg = useRef<SVGSVGElement>(null);
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const fit = (least: number): void => setView(fitted(picture, svg.current!.getBoundingClientRect(), least));
  // Text that cannot be read helps nobody: large graphs begin at their top.
  useLayoutEffect(() => fit(LEGIBLE), [picture]);
  useReveal(picture, chosen, svg, setView);
  const gestures = useGestures(svg, view, setView);
  const zoom = (factor: number): void => {
    const { width, height } = svg.current!.getBoundingClientRect();
    setView((old) => zoomed(old, factor, width / 2, height / 2));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit(SMALLEST);
    else if (event.key === "Escape") onChoose(null);
  };
  return (
    <div class="drawing" onKeyDown={onKeyDown}>
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" onClick={() => zoom(1.25)} aria-label="Larger">
          +
        </button>
        <button type="button" onClick={() => zoom(0.8)} aria-label="Smaller">
          −
        </button>
        <button type="button" onClick={() => fit(SMALLEST)}>
          Fit
        </button>
      </div>
      <svg ref={svg} role="group" aria-label="Scheduler graph" {...gestures}>
        <Arrowheads />
        <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
          <Content picture={picture} chosen={chosen} onChoose={onChoose} />
        </g>
      </svg>
    </div>
  );
}

function fitted(picture: Picture, frame: DOMRect, least: number): View {
  const share = Math.min(frame.width / picture.width, frame.height / picture.height, 1.1);
  const scale = Number.isFinite(share) ? Math.max(share * 0.96, least) : 1;
  return {
    x: (frame.width - picture.width * scale) / 2,
    y: Math.max((frame.height - picture.height * scale) / 2, 6),
    scale,
  };
}

function zoomed(view: View, factor: number, x: number, y: number): View {
  const scale = Math.min(Math.max(view.scale * factor, SMALLEST), LARGEST);
  const ratio = scale / view.scale;
  return { scale, x: x - (x - view.x) * ratio, y: y - (y - view.y) * ratio };
}

/** Nodes that another view asked for are brought into sight. */
function useReveal(
  picture: Picture,
  chosen: Set<string>,
  svg: { current: SVGSVGElement | null },
  setView: (change: (old: View) => View) => void,
): void {
  const names = [...chosen].join("\n");
  useEffect(() => {
    const first = picture.nodes.find((placed) => chosen.has(placed.node.id));
    const frame = svg.current?.getBoundingClientRect();
    if (!first || !frame) return;
    setView((old) => {
      const x = first.x * old.scale + old.x;
      const y = first.y * old.scale + old.y;
      if (x > 60 && x < frame.width - 60 && y > 30 && y < frame.height - 30) return old;
      return { ...old, x: frame.width / 2 - first.x * old.scale, y: frame.height / 2 - first.y * old.scale };
    });
  }, [picture, names]);
}

interface Gestures {
  onPointerDown: (event: PointerEvent) => void;
  onPointerMove: (event: PointerEvent) => void;
  onPointerUp: () => void;
}

function useGestures(
  svg: { current: SVGSVGElement | null },
  view: View,
  setView: (change: View | ((old: View) => View)) => void,
): Gestures {
  const start = useRef<{ x: number; y: number; view: View } | null>(null);
  useEffect(() => {
    const element = svg.current!;
    const onWheel = (event: WheelEvent): void => {
      event.preventDefault();
      const frame = element.getBoundingClientRect();
      const factor = Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015));
      setView((old) => zoomed(old, factor, event.clientX - frame.left, event.clientY - frame.top));
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, []);
  return {
    onPointerDown: (event) => {
      start.current = { x: event.clientX, y: event.clientY, view };
    },
    onPointerMove: (event) => {
      const from = start.current;
      if (!from || event.buttons === 0) return;
      const [x, y] = [event.clientX - from.x, event.clientY - from.y];
      if (Math.abs(x) + Math.abs(y) > 3) setView({ ...from.view, x: from.view.x + x, y: from.view.y + y });
    },
    onPointerUp: () => {
      start.current = null;
    },
  };
}

function Arrowheads(): JSX.Element {
  return (
    <defs>
      <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
        <path d="M0 0 L8 4 L0 8 z" class="arrowhead" />
      </marker>
    </defs>
  );
}

/** Drawn once; moving and zooming change only what is around it. */
function Content({ picture, chosen, onChoose }: Properties): JSX.Element {
  const lines = useMemo(
    () => (
      <>
        {picture.groups.map((placed) => (
          <GroupBox key={placed.group.id} placed={placed} />
        ))}
        {picture.edges.map((placed, place) => (
          <EdgeLine key={place} placed={placed} />
        ))}
        {picture.groups.map((placed) => (
          <GroupName key={placed.group.id} placed={placed} />
        ))}
      </>
    ),
    [picture],
  );
  const stop = [...chosen][0] ?? picture.nodes[0]?.node.id;
  return (
    <>
      {lines}
      {picture.nodes.map((placed) => (
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
  const { group, x, y, width, height } = placed;
  return (
    <g class="group">
      <rect x={x - width / 2} y={y - height / 2} width={width} height={height} rx="8" />
      <title>{brief(`${group.kind} ${group.id} ${group.kernel}`)}</title>
    </g>
  );
}

/** Above the lines, so that it can be read. */
function GroupName({ placed }: { placed: PlacedGroup }): JSX.Element {
  const { group, x, y, width, height } = placed;
  return (
    <text class="group-name" x={x - width / 2 + 6} y={y - height / 2 + 13}>
      {brief(group.kernel || group.id, Math.max(Math.floor(width / 6.7) - 3, 8))}
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

function curve(points: { x: number; y: number }[]): string {
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
