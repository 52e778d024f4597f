/** Spans as bars on a canvas: one lane per process or worker, one row per depth. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Span, Timeline } from "../contract";
import { type Flame, type Placed, type Window, draw, layOut, spanAt } from "../flame";
import { brief, duration } from "../text";
import { onColoursChanged } from "../theme";

interface Properties {
  spans: Timeline;
  colours: Map<string, number>;
  chosen: Span | null;
  onChoose: (span: Span | null) => void;
}

const TALLEST = 420;

export function FlameChart({ spans, colours, chosen, onChoose }: Properties): JSX.Element {
  const flame = useMemo(() => layOut(spans), [spans]);
  const holder = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [window_, setWindow] = useState<Window>(flame.whole);
  const [hovered, setHovered] = useState<{ placed: Placed; x: number; y: number } | null>(null);
  const paint = usePainter({ canvas, holder, flame, window: window_, colours, chosen, hovered: hovered?.placed ?? null });
  useEffect(() => setWindow(flame.whole), [flame]);
  useZoomTo(chosen, flame, setWindow);
  const move = useGestures(holder, flame, setWindow);
  const locate = (event: MouseEvent): Placed | null => {
    const frame = canvas.current!.getBoundingClientRect();
    return spanAt(flame, window_, frame.width, event.clientX - frame.left, event.clientY - frame.top + holder.current!.scrollTop);
  };
  const onMove = (event: MouseEvent): void => {
    const placed = locate(event);
    const frame = holder.current!.getBoundingClientRect();
    setHovered(placed ? { placed, x: event.clientX - frame.left, y: event.clientY - frame.top } : null);
  };
  return (
    <div class="flame-frame">
      <div
        class="flame"
        ref={holder}
        role="application"
        aria-label="Flame chart; the table below holds the same spans"
        tabIndex={0}
        style={{ height: `${Math.min(flame.height, TALLEST)}px` }}
        onKeyDown={(event) => keyed(event, move)}
        onScroll={paint}
        onMouseMove={onMove}
        onMouseLeave={() => setHovered(null)}
        onClick={(event) => onChoose(locate(event)?.span ?? null)}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <div style={{ height: `${flame.height}px` }} />
      </div>
      {hovered && <Tip placed={hovered.placed} x={hovered.x} y={hovered.y} />}
    </div>
  );
}

function Tip({ placed, x, y }: { placed: Placed; x: number; y: number }): JSX.Element {
  const { span } = placed;
  return (
    <div class="tip" style={{ left: `${Math.max(x - 20, 4)}px`, top: `${y + 16}px` }}>
      <strong>{brief(span.stage, 60)}</strong> {brief(span.label, 80)}
      <br />
      {duration(span.seconds)}, from {duration(span.start)} on
    </div>
  );
}

interface Painting {
  canvas: { current: HTMLCanvasElement | null };
  holder: { current: HTMLDivElement | null };
  flame: Flame;
  window: Window;
  colours: Map<string, number>;
  chosen: Span | null;
  hovered: Placed | null;
}

/** Draws at most once per frame, whatever asks for it. */
function usePainter(painting: Painting): () => void {
  const latest = useRef(painting);
  latest.current = painting;
  const asked = useRef(0);
  const paint = (): void => {
    if (asked.current) return;
    asked.current = window.requestAnimationFrame(() => {
      asked.current = 0;
      const { canvas, holder, flame, colours, chosen, hovered } = latest.current;
      if (!canvas.current || !holder.current) return;
      const { clientWidth: width, clientHeight: height, scrollTop: top } = holder.current;
      draw(canvas.current, flame, { width, height, top, window: latest.current.window, colours, chosen, hovered });
    });
  };
  useEffect(paint);
  useEffect(() => {
    const observer = new ResizeObserver(paint);
    observer.observe(painting.holder.current!);
    const forget = onColoursChanged(paint);
    return () => {
      observer.disconnect();
      forget();
    };
  }, []);
  return paint;
}

/** A span that was chosen in the table but is too narrow or out of sight is zoomed to. */
function useZoomTo(chosen: Span | null, flame: Flame, setWindow: (change: (old: Window) => Window) => void): void {
  useEffect(() => {
    if (!chosen) return;
    setWindow((old) => {
      const width = old.to - old.from;
      const inSight = chosen.start >= old.from && chosen.start + chosen.seconds <= old.to;
      if (inSight && chosen.seconds > width / 400) return old;
      const margin = Math.max(chosen.seconds * 2, width / 1e5, 1e-6);
      return bounded({ from: chosen.start - margin, to: chosen.start + chosen.seconds + margin }, flame);
    });
  }, [chosen]);
}

function bounded({ from, to }: Window, { whole }: Flame): Window {
  const width = Math.min(Math.max(to - from, (whole.to - whole.from) * 1e-6), whole.to - whole.from);
  const start = Math.min(Math.max(from, whole.from), whole.to - width);
  return { from: start, to: start + width };
}

type Move = (zoom: number, shift: number, at?: number) => void;

function useGestures(
  holder: { current: HTMLDivElement | null },
  flame: Flame,
  setWindow: (change: (old: Window) => Window) => void,
): Move {
  const move: Move = (zoom, shift, at = 0.5) =>
    setWindow((old) => {
      const width = old.to - old.from;
      const centre = old.from + at * width;
      const from = centre - (centre - old.from) * zoom + shift * width;
      return bounded({ from, to: from + width * zoom }, flame);
    });
  useEffect(() => {
    const element = holder.current!;
    const share = (event: MouseEvent): number => {
      const frame = element.getBoundingClientRect();
      return (event.clientX - frame.left) / frame.width;
    };
    const onWheel = (event: WheelEvent): void => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(1, event.deltaX / element.clientWidth);
      else if (event.shiftKey) element.scrollTop += event.deltaY;
      else move(Math.exp(event.deltaY * 0.002), 0, share(event));
    };
    const onPointerMove = (event: PointerEvent): void => {
      if (event.buttons === 1) move(1, -event.movementX / element.clientWidth);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    element.addEventListener("pointermove", onPointerMove);
    return () => {
      element.removeEventListener("wheel", onWheel);
      element.removeEventListener("pointermove", onPointerMove);
    };
  }, [flame]);
  return move;
}

const KEYS: Record<string, [zoom: number, shift: number]> = {
  "+": [0.7, 0],
  "=": [0.7, 0],
  "-": [1 / 0.7, 0],
  ArrowLeft: [1, -0.15],
  ArrowRight: [1, 0.15],
  "0": [1e9, 0],
};

function keyed(event: KeyboardEvent, move: Move): void {
  const known = KEYS[event.key];
  if (!known || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  move(...known);
}
