/** One call of a graph: its kernels in the order in which they ran, and the gaps between them. */

import type { JSX } from "preact";
import type { ProfiledGraph, UsualKernel } from "../contract";
import { address } from "../route";
import { brief, duration, plural } from "../text";

const MOST = 600;

interface Row {
  kernel: UsualKernel;
  /** Seconds before it in which no kernel ran. */
  gap: number;
}

export function Waterfall({ graph }: { graph: ProfiledGraph }): JSX.Element {
  const rows = rowsOf(graph.kernels);
  const busy = graph.kernels.reduce((sum, kernel) => sum + kernel.seconds, 0);
  const whole = Math.max(graph.usual ?? 0, ...ends(graph), 1e-12);
  const idle = Math.max(whole - busy, 0);
  const longest = rows.reduce((most, row) => (row.gap > most.gap ? row : most), rows[0]!);
  return (
    <>
      <p class="prose">
        {duration(whole)}, {plural(rows.length, "kernel")} on {brief(graph.device, 40)}, by {by(graph.measured_by)};{" "}
        {duration(idle)} ({idle > 0 && idle < whole / 100 ? "< 1" : Math.round((100 * idle) / whole)} %) in gaps, the longest {duration(longest.gap)} before{" "}
        <KernelLink graph={graph} kernel={longest.kernel} />. The median of {plural(graph.calls, "call")} is{" "}
        {duration(graph.median)}, quartiles {duration(graph.low)} and {duration(graph.high)}
        {graph.eager !== null && `; eager takes ${duration(graph.eager)} with made-up inputs${graph.slower_than_eager ? ": less" : ""}`}.
      </p>
      <ol class="waterfall" tabIndex={0} aria-label={`Kernels of one call of ${brief(graph.key, 60)}`}>
        {rows.slice(0, MOST).map((row, place) => (
          <li key={place}>
            <KernelLink graph={graph} kernel={row.kernel} />
            <span class="track" aria-hidden="true">
              <span class="gap" style={span(row.kernel.start - row.gap, row.gap, whole)} />
              <span class="bar" style={span(row.kernel.start, row.kernel.seconds, whole)} />
            </span>
            <span class="numeric">{duration(row.kernel.seconds)}</span>
            <span class="numeric muted">{row.gap > 0 ? `+${duration(row.gap)}` : ""}</span>
          </li>
        ))}
      </ol>
      {rows.length > MOST && <p class="muted">and {plural(rows.length - MOST, "kernel")} more; the Perfetto export has all.</p>}
    </>
  );
}

function by(measured: string): string {
  if (measured === "profiler") return "torch.profiler";
  return measured === "events" ? "CUDA events" : "the clock around each call";
}

function ends(graph: ProfiledGraph): number[] {
  const last = graph.kernels[graph.kernels.length - 1];
  return last ? [last.start + last.seconds] : [];
}

function rowsOf(kernels: UsualKernel[]): Row[] {
  let end = 0;
  return kernels.map((kernel) => {
    const gap = Math.max(kernel.start - end, 0);
    end = Math.max(end, kernel.start + kernel.seconds);
    return { kernel, gap };
  });
}

function span(start: number, seconds: number, whole: number): Record<string, string> {
  return { left: `${(100 * start) / whole}%`, width: `${(100 * seconds) / whole}%` };
}

function KernelLink({ graph, kernel }: { graph: ProfiledGraph; kernel: UsualKernel }): JSX.Element {
  if (graph.graph === null) return <span class="mono">{brief(kernel.name, 70)}</span>;
  return (
    <a class="mono" href={address("explorer", { graph: graph.graph, kernel: kernel.id })} title={brief(kernel.name, 200)}>
      {brief(kernel.name, 70)}
    </a>
  );
}
