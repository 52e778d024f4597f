/** Bytes in use over one step, compiled and in eager, with the peak of each marked. */

import { scaleLinear } from "d3-scale";
import type { JSX } from "preact";
import type { MemoryCourse, MemoryStep } from "../contract";
import { bytes, duration } from "../text";

const WIDTH = 900;
const HEIGHT = 300;
const LEFT = 76;
const RIGHT = 16;
const TOP = 22;
const BOTTOM = 40;
const TICKS = 5;

type Scale = (value: number) => number;

export function MemoryCurve({ step }: { step: MemoryStep }): JSX.Element {
  const courses = [step.compiled, ...(step.eager ? [step.eager] : [])];
  const most = Math.max(...courses.map((course) => course.peak), 1);
  const longest = Math.max(...courses.map((course) => course.seconds), 1e-9);
  const x = scaleLinear().domain([0, longest]).range([LEFT, WIDTH - RIGHT]).clamp(true);
  const y = scaleLinear().domain([0, most]).range([HEIGHT - BOTTOM, TOP]).clamp(true);
  return (
    <figure class="memory-figure">
      <svg class="memory-curve" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={described(step)}>
        {wholeTicks(most).map((tick) => (
          <g key={`y${tick}`}>
            <line class="grid" x1={LEFT} x2={WIDTH - RIGHT} y1={y(tick)} y2={y(tick)} />
            <text x={LEFT - 6} y={y(tick) + 4} text-anchor="end">{bytes(tick)}</text>
          </g>
        ))}
        {x.ticks(TICKS).map((tick) => (
          <text key={`x${tick}`} x={x(tick)} y={HEIGHT - BOTTOM + 16} text-anchor="middle">{duration(tick)}</text>
        ))}
        <text x={(LEFT + WIDTH) / 2} y={HEIGHT - 6} text-anchor="middle">time since the call began, measured</text>
        {step.eager && <path class="eager" d={line(step.eager, x, y)} />}
        <path class="area" d={`${line(step.compiled, x, y)}V${y(0)}H${x(0)}Z`} />
        <path class="compiled" d={line(step.compiled, x, y)} />
        {step.eager && <Peak course={step.eager} name="eager" x={x} y={y} />}
        <Peak course={step.compiled} name="compiled" x={x} y={y} />
      </svg>
      <figcaption class="legend">
        <span><i class="key compiled" /> compiled</span>
        {step.eager ? <span><i class="key eager" /> in eager</span> : <span class="muted">eager was not measured</span>}
        <span><i class="key peak" /> peak</span>
      </figcaption>
    </figure>
  );
}

/** A power of two apart, so that each is a round number of KiB or MiB. */
function wholeTicks(most: number): number[] {
  const step = 2 ** Math.max(0, Math.round(Math.log2(most / TICKS)));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, place) => place * step);
}

/** Memory stays as it is until the next allocation or free. */
function line(course: MemoryCourse, x: Scale, y: Scale): string {
  const parts = course.points.map((point) => `H${x(point.seconds).toFixed(1)}V${y(point.total).toFixed(1)}`);
  return `M${x(0)},${y(course.base)}${parts.join("")}H${x(course.seconds).toFixed(1)}`;
}

function Peak({ course, name, x, y }: { course: MemoryCourse; name: string; x: Scale; y: Scale }): JSX.Element {
  const at = x(course.peak_seconds);
  const isRight = at > WIDTH * 0.7;
  return (
    <g class={`peak ${name}`}>
      <circle cx={at} cy={y(course.peak)} r={4} />
      <text x={at + (isRight ? -8 : 8)} y={y(course.peak) - 6} text-anchor={isRight ? "end" : "start"}>
        {name}: {bytes(course.peak)}
      </text>
    </g>
  );
}

function described(step: MemoryStep): string {
  const of = (name: string, course: MemoryCourse): string =>
    `${name}: from ${bytes(course.base)} to a peak of ${bytes(course.peak)} after ${duration(course.peak_seconds)}`;
  return ["Memory over one step", of("compiled", step.compiled), ...(step.eager ? [of("in eager", step.eager)] : [])].join("; ");
}
