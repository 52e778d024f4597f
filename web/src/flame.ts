/** The flame chart without the browser's events: where bars are, and how they are painted. */

import { scaleLinear } from "d3-scale";
import type { Span, Timeline } from "./contract";
import { brief, duration } from "./text";

const ROW = 20;
const TITLE = 18;
const GAP = 8;
const AXIS = 22;
export const STAGE_COLOURS = 16;

export interface Window {
  from: number;
  to: number;
}

export interface Placed {
  span: Span;
  y: number;
}

interface Lane {
  name: string;
  y: number;
  height: number;
}

export interface Flame {
  lanes: Lane[];
  placed: Placed[];
  whole: Window;
  height: number;
}

export function layOut(timeline: Timeline): Flame {
  const depths = timeline.lanes.map(() => 0);
  for (const span of timeline.spans) depths[span.lane] = Math.max(depths[span.lane] ?? 0, span.depth + 1);
  let y = AXIS;
  const lanes = timeline.lanes.map((lane, place): Lane => {
    // A process in which nothing was timed takes no room.
    const height = depths[place] ? TITLE + depths[place]! * ROW + GAP : 0;
    const laid = { name: laneName(lane), y, height };
    y += height;
    return laid;
  });
  const placed = timeline.spans.map((span) => ({ span, y: lanes[span.lane]!.y + TITLE + span.depth * ROW }));
  // Longer spans first, so that short ones are painted over them and found before them.
  placed.sort((left, right) => right.span.seconds - left.span.seconds);
  return { lanes, placed, whole: extent(timeline.spans), height: y + GAP };
}

function laneName({ name, kind }: { name: string; kind: string }): string {
  return kind && !name.includes(kind) ? `${name}, ${kind}` : name;
}

function extent(spans: Span[]): Window {
  let [from, to] = [Infinity, -Infinity];
  for (const span of spans) {
    from = Math.min(from, span.start);
    to = Math.max(to, span.start + span.seconds);
  }
  return to > from ? { from, to } : { from: Number.isFinite(from) ? from : 0, to: (Number.isFinite(from) ? from : 0) + 1 };
}

function scaleOf(window: Window, width: number) {
  return scaleLinear().domain([window.from, window.to]).range([0, width]);
}

/** The span under a point, with bars at least a few pixels wide to the pointer. */
export function spanAt(flame: Flame, window: Window, width: number, x: number, y: number): Placed | null {
  const scale = scaleOf(window, width);
  for (let place = flame.placed.length - 1; place >= 0; place -= 1) {
    const placed = flame.placed[place]!;
    if (y < placed.y || y >= placed.y + ROW - 1) continue;
    const left = scale(placed.span.start);
    const right = Math.max(scale(placed.span.start + placed.span.seconds), left + 3);
    if (x >= left - 1 && x <= right) return placed;
  }
  return null;
}

export interface Frame {
  width: number;
  height: number;
  top: number;
  window: Window;
  colours: Map<string, number>;
  chosen: Span | null;
  hovered: Placed | null;
}

export function draw(canvas: HTMLCanvasElement, flame: Flame, frame: Frame): void {
  const context = prepare(canvas, frame);
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(name).trim() || "gray";
  const palette = [...Array(STAGE_COLOURS).keys()].map((place) => colour(`--stage-${place}`));
  context.translate(0, -frame.top);
  drawLanes(context, flame, frame, colour);
  const scale = scaleOf(frame.window, frame.width);
  drawGrid(context, flame, frame, scale, colour);
  for (const placed of flame.placed) drawSpan(context, placed, scale, frame, palette, colour);
  context.translate(0, frame.top);
  drawAxis(context, frame, scale, colour);
}

function prepare(canvas: HTMLCanvasElement, frame: Frame): CanvasRenderingContext2D | null {
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.max(Math.round(frame.width * density), 1);
  canvas.height = Math.max(Math.round(frame.height * density), 1);
  canvas.style.width = `${frame.width}px`;
  canvas.style.height = `${frame.height}px`;
  const context = canvas.getContext("2d");
  context?.scale(density, density);
  if (context) context.font = "11px system-ui, sans-serif";
  return context;
}

type Colour = (name: string) => string;

function drawLanes(context: CanvasRenderingContext2D, flame: Flame, frame: Frame, colour: Colour): void {
  flame.lanes.forEach((lane, place) => {
    if (lane.height === 0 || lane.y + lane.height < frame.top || lane.y > frame.top + frame.height) return;
    context.fillStyle = colour(place % 2 ? "--panel" : "--ground");
    context.fillRect(0, lane.y, frame.width, lane.height);
    context.fillStyle = colour("--muted");
    context.fillText(brief(lane.name, 160), 6, lane.y + 13);
  });
}

function drawSpan(
  context: CanvasRenderingContext2D,
  placed: Placed,
  scale: (value: number) => number,
  frame: Frame,
  palette: string[],
  colour: Colour,
): void {
  const { span, y } = placed;
  if (y + ROW < frame.top || y > frame.top + frame.height) return;
  const left = Math.max(scale(span.start), -2);
  const right = Math.min(scale(span.start + span.seconds), frame.width + 2);
  if (right < 0 || left > frame.width) return;
  const width = Math.max(right - left - 0.5, 1);
  context.fillStyle = palette[frame.colours.get(span.stage) ?? 0]!;
  context.fillRect(left, y, width, ROW - 2);
  if (span === frame.chosen || placed === frame.hovered) {
    context.strokeStyle = colour("--text");
    context.lineWidth = span === frame.chosen ? 2 : 1;
    context.strokeRect(left + 0.5, y + 0.5, Math.max(width - 1, 1), ROW - 3);
  }
  if (width > 26) drawLabel(context, span, left, y, width, colour);
}

function drawLabel(
  context: CanvasRenderingContext2D,
  span: Span,
  left: number,
  y: number,
  width: number,
  colour: Colour,
): void {
  context.save();
  context.beginPath();
  context.rect(left, y, width - 3, ROW);
  context.clip();
  context.fillStyle = colour("--stage-text");
  const words = [span.stage, span.label, duration(span.seconds)].filter(Boolean).join("  ");
  context.fillText(brief(words, Math.ceil(width / 4) + 4), Math.max(left, 0) + 4, y + 13);
  context.restore();
}

type Scale = ReturnType<typeof scaleOf>;

function ticks(scale: Scale, frame: Frame): number[] {
  return scale.ticks(Math.max(Math.floor(frame.width / 110), 2));
}

function drawGrid(context: CanvasRenderingContext2D, flame: Flame, frame: Frame, scale: Scale, colour: Colour): void {
  context.fillStyle = colour("--line");
  for (const tick of ticks(scale, frame)) context.fillRect(scale(tick), 0, 1, flame.height);
}

function drawAxis(context: CanvasRenderingContext2D, frame: Frame, scale: Scale, colour: Colour): void {
  context.fillStyle = colour("--panel");
  context.fillRect(0, 0, frame.width, AXIS - 2);
  context.fillStyle = colour("--muted");
  for (const tick of ticks(scale, frame)) {
    context.fillText(duration(Math.round(tick * 1e9) / 1e9), scale(tick) + 4, 14);
  }
}
