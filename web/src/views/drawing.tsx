/** A picture that can be moved, zoomed and walked through with the keyboard. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Picture } from "../layout";
import { type Frame, type View, areaInSight } from "../sight";
import { DrawnGraph, OutlinedGraph } from "./drawn_graph";

interface Properties {
  picture: Picture;
  chosen: Set<string>;
  onChoose: (id: string | null) => void;
}

/** Below this scale text cannot be read: only shapes are drawn, however many there are. */
const FAR = 0.3;
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
  const frame = useFrame(svg);
  const Shown = view.scale < FAR ? OutlinedGraph : DrawnGraph;
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
          <Shown picture={picture} area={areaInSight(view, frame)} chosen={chosen} onChoose={onChoose} />
        </g>
      </svg>
    </div>
  );
}

/** The size of the drawing on the screen. */
function useFrame(svg: { current: SVGSVGElement | null }): Frame {
  const [frame, setFrame] = useState<Frame>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const measure = (): void => setFrame({ width: svg.current!.clientWidth, height: svg.current!.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(svg.current!);
    return () => observer.disconnect();
  }, []);
  return frame;
}

function fitted(picture: Picture, frame: DOMRect, least: number): View {
  const share = Math.min(frame.width / picture.width, frame.height / picture.height, 1.1);
  const scale = Number.isFinite(share) ? Math.max(share * 0.96, least) : 1;
  // What is too wide begins at its first node.
  const middle = picture.width * scale > frame.width ? (picture.nodes[0]?.x ?? 0) : picture.width / 2;
  return {
    x: frame.width / 2 - middle * scale,
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
