/** The roofline: how many operations a kernel does per byte, and how fast, under what the machine can do. */

import { scaleLog } from "d3-scale";
import type { JSX } from "preact";
import type { Profile, ProfiledKernel, ProfiledMachine } from "../contract";
import { Choices, Empty } from "../parts";
import { address } from "../route";
import { useState } from "preact/hooks";
import { brief, decimal, duration, plural } from "../text";

const WIDTH = 900;
const HEIGHT = 360;
const LEFT = 60;
const BOTTOM = 40;
const TOP = 16;
const RIGHT = 16;
const MOST = 2000;

interface Point {
  kernel: ProfiledKernel;
  intensity: number;
  speed: number;
}

export function Roofline({ profile }: { profile: Profile }): JSX.Element {
  const devices = [...new Set(profile.kernels.map((kernel) => kernel.device))];
  const [device, setDevice] = useState(devices[0] ?? "");
  const kernels = profile.kernels.filter((kernel) => kernel.device === device);
  const points = kernels.map(pointOf).filter((point): point is Point => point !== null).slice(0, MOST);
  const machine = profile.machines.find((one) => one.device === device);
  return (
    <section aria-labelledby="roofline-title">
      <h2 id="roofline-title">Kernels under the machine's limits</h2>
      {devices.length > 1 && (
        <Choices label="Device" value={device} choices={devices.map((value) => ({ value, label: brief(value, 30) }))} onChoose={setDevice} />
      )}
      {points.length > 0 ? <Picture points={points} machine={machine} /> : <Empty>No kernel has both bytes and operations that are known.</Empty>}
      {points.length < kernels.length && (
        <p class="muted">
          {plural(kernels.length - points.length, "kernel")} not shown here: no operations, or bytes that are not known. They are in the table below.
        </p>
      )}
    </section>
  );
}

function pointOf(kernel: ProfiledKernel): Point | null {
  if (!kernel.bytes || !kernel.flops || kernel.median <= 0) return null;
  return { kernel, intensity: kernel.flops / kernel.bytes, speed: kernel.flops / kernel.median };
}

function Picture({ points, machine }: { points: Point[]; machine: ProfiledMachine | undefined }): JSX.Element {
  const top = Math.max(...(machine ? machine.matrix.values() : []), 0);
  const speeds = [...points.map((point) => point.speed), ...(top ? [top] : [])];
  const ridge = machine?.bandwidth && top ? [top / machine.bandwidth] : [];
  const reach = [...points.map((point) => point.intensity), ...ridge];
  const x = scaleLog().domain([lowest(reach) / 2, highest(reach) * 2]).range([LEFT, WIDTH - RIGHT]);
  const y = scaleLog().domain([lowest(speeds) / 2, highest(speeds) * 2]).range([HEIGHT - BOTTOM, TOP]);
  const most = highest(points.map((point) => point.kernel.total));
  return (
    <svg class="roofline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label="Roofline: operations per second over operations per byte, both on logarithmic scales">
      {powers(x.domain()).map((tick) => (
        <g key={`x${tick}`}>
          <line class="grid" x1={x(tick)} x2={x(tick)} y1={TOP} y2={HEIGHT - BOTTOM} />
          <text x={x(tick)} y={HEIGHT - BOTTOM + 15} text-anchor="middle">{decimal(tick)}</text>
        </g>
      ))}
      {powers(y.domain()).map((tick) => (
        <g key={`y${tick}`}>
          <line class="grid" x1={LEFT} x2={WIDTH - RIGHT} y1={y(tick)} y2={y(tick)} />
          <text x={LEFT - 6} y={y(tick) + 4} text-anchor="end">{decimal(tick / 1e9)}</text>
        </g>
      ))}
      <text x={(LEFT + WIDTH) / 2} y={HEIGHT - 6} text-anchor="middle">operations per byte, modelled</text>
      <text transform={`translate(13 ${HEIGHT / 2}) rotate(-90)`} text-anchor="middle">GFLOP/s, measured</text>
      {machine && top > 0 && <Roof bandwidth={machine.bandwidth} top={top} x={x} y={y} name="memory" />}
      {machine && top > 0 && machine.cached_bandwidth > machine.bandwidth * 1.1 && (
        <Roof bandwidth={machine.cached_bandwidth} top={top} x={x} y={y} name="caches" />
      )}
      {points.map((point, place) => (
        <Dot key={place} point={point} cx={x(point.intensity)} cy={y(point.speed)} size={4 + 10 * Math.sqrt(Math.max(point.kernel.total, 0) / most)} />
      ))}
    </svg>
  );
}

function lowest(values: number[]): number {
  return values.reduce((least, value) => Math.min(least, value), Infinity);
}

function highest(values: number[]): number {
  return values.reduce((most, value) => Math.max(most, value), 1e-300);
}

function powers([from = 1, to = 1]: number[]): number[] {
  const first = Math.ceil(Math.log10(from));
  const last = Math.floor(Math.log10(to));
  const step = Math.max(1, Math.ceil((last - first + 1) / 12));
  const whole = Array.from({ length: Math.max(last - first + 1, 0) }, (_, place) => place)
    .filter((place) => place % step === 0)
    .map((place) => 10 ** (first + place));
  if (whole.length > 2) return whole;
  const around = [first - 1, ...whole.map(Math.log10), last].map((power) => 10 ** Math.round(power));
  const parts = around.flatMap((tick) => [tick, 2 * tick, 5 * tick]).filter((tick) => tick >= from && tick <= to);
  return [...new Set(parts)].sort((left, right) => left - right);
}

type Scale = ReturnType<typeof scaleLog<number, number>>;

function Roof({ bandwidth, top, x, y, name }: { bandwidth: number; top: number; x: Scale; y: Scale; name: string }): JSX.Element | null {
  if (bandwidth <= 0) return null;
  const [from = 1, to = 1] = x.domain();
  const [low = 1] = y.domain();
  const begin = Math.max(from, low / bandwidth);
  const ridge = Math.min(Math.max(top / bandwidth, begin), to);
  return (
    <>
      <polyline
        class={`roof roof-${name}`}
        points={`${x(begin)},${y(begin * bandwidth)} ${x(ridge)},${y(Math.min(ridge * bandwidth, top))} ${x(to)},${y(Math.min(to * bandwidth, top))}`}
      />
      <text class="roof-name" x={x(begin) + 6} y={y(begin * bandwidth) - (name === "caches" ? 12 : -14)}>
        {name}: {decimal(bandwidth / 1e9)} GB/s
      </text>
      {name === "memory" && (
        <text class="roof-name" x={x(to) - 4} y={y(top) - 6} text-anchor="end">
          products: {decimal(top / 1e9)} GFLOP/s
        </text>
      )}
    </>
  );
}

function Dot({ point, cx, cy, size }: { point: Point; cx: number; cy: number; size: number }): JSX.Element {
  const { kernel } = point;
  const share = kernel.floor ? `, ${Math.round((100 * kernel.floor) / kernel.median)} % of the limit (${kernel.limit})` : "";
  const told = brief(`${kernel.name}: ${duration(kernel.median)} a call${share}, ${decimal(point.speed / 1e9)} GFLOP/s`, 300);
  const dot = <circle class="dot" cx={cx} cy={cy} r={size} />;
  if (kernel.graph === null) return <g><title>{told}</title>{dot}</g>;
  return (
    <a href={address("explorer", { graph: kernel.graph, kernel: kernel.id })} aria-label={told}>
      <title>{told}</title>
      {dot}
    </a>
  );
}
