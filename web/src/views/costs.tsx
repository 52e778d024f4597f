/** What compiling and running cost, in a sentence and a picture each. */

import type { JSX } from "preact";
import type { KernelRow, StageTime } from "../contract";
import { address } from "../route";
import type { Index } from "../schema";
import { brief, bytes, duration, plural } from "../text";

const MOST = 8;

export function Costs({ index }: { index: Index }): JSX.Element | null {
  if (index.graphs.length === 0) return null;
  return (
    <div class="costs">
      <CompileCost index={index} />
      <RunCost rows={index.kernels} />
    </div>
  );
}

function CompileCost({ index }: { index: Index }): JSX.Element {
  const total = index.stages.reduce((sum, stage) => sum + stage.seconds, 0);
  const stages = [...index.stages].sort((left, right) => right.seconds - left.seconds);
  return (
    <section aria-labelledby="compile-cost">
      <h2 id="compile-cost">Compiling: {duration(total)} in all stages, measured</h2>
      <CompilerSentence rows={index.kernels} />
      <Bars
        label="Seconds per stage"
        bars={stages.slice(0, MOST).map((stage: StageTime) => ({
          name: stage.name,
          value: stage.seconds,
          text: `${duration(stage.seconds)}, ${percent(stage.seconds, total)}`,
          link: address("timeline"),
        }))}
      />
    </section>
  );
}

/** Compilers run beside each other, so their seconds may be more than those of the stage. */
function CompilerSentence({ rows }: { rows: KernelRow[] }): JSX.Element | null {
  const compiled = rows.filter((row) => row.made === "compiled" && row.seconds !== null);
  const slowest = [...compiled].sort((left, right) => (right.seconds ?? 0) - (left.seconds ?? 0))[0];
  if (!slowest) return null;
  const seconds = compiled.reduce((sum, row) => sum + (row.seconds ?? 0), 0);
  return (
    <p class="prose">
      C++ and Triton compilers ran for {duration(seconds)} on {plural(compiled.length, "kernel")}; the slowest took{" "}
      {duration(slowest.seconds)}: <KernelLink row={slowest} />
    </p>
  );
}

function RunCost({ rows }: { rows: KernelRow[] }): JSX.Element {
  const known = rows.filter((row) => (row.bytes ?? 0) > 0);
  const total = known.reduce((sum, row) => sum + (row.bytes ?? 0), 0);
  const sorted = [...known].sort((left, right) => (right.bytes ?? 0) - (left.bytes ?? 0));
  return (
    <section aria-labelledby="run-cost">
      <h2 id="run-cost">Running: {total > 0 ? `at least ${bytes(total)} moved, modelled` : "not modelled"}</h2>
      <p class="prose">
        {total > 0
          ? "Every graph called once, with the sizes that it was compiled for. 'inductoscope profile' measures the time."
          : "The sizes of the buffers were not recorded."}
      </p>
      <Bars
        label="Bytes per kernel"
        bars={sorted.slice(0, MOST).map((row) => ({
          name: row.id || row.name,
          value: row.bytes ?? 0,
          text: `${bytes(row.bytes)}, ${percent(row.bytes ?? 0, total)}`,
          link: address("explorer", { graph: row.graph, kernel: row.id || row.name }),
        }))}
      />
    </section>
  );
}

function KernelLink({ row }: { row: KernelRow }): JSX.Element {
  return (
    <a class="mono" href={address("explorer", { graph: row.graph, kernel: row.id || row.name })}>
      {brief(row.name, 60)}
    </a>
  );
}

function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "";
}

interface Bar {
  name: string;
  value: number;
  text: string;
  link: string;
}

function Bars({ label, bars }: { label: string; bars: Bar[] }): JSX.Element {
  const longest = Math.max(...bars.map((bar) => bar.value), 1e-12);
  return (
    <ol class="cost-bars" aria-label={label}>
      {bars.map((bar, place) => (
        <li key={place}>
          <a href={bar.link} title={brief(bar.name, 200)}>
            {brief(bar.name, 60)}
          </a>
          <span class="stage-bar" aria-hidden="true">
            <span style={{ width: `${(100 * bar.value) / longest}%` }} />
          </span>
          <span class="numeric">{bar.text}</span>
        </li>
      ))}
    </ol>
  );
}
