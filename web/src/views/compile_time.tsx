/** What `inductoscope profile --compile` measured: the cost of every stage, cold and from the cache. */

import type { JSX } from "preact";
import { type Costs, type StageCost, readCostsChunk } from "../contract";
import { useChunk } from "../data";
import { Loaded } from "../parts";
import type { Index } from "../schema";
import { type Column, DataTable } from "../table";
import { decimal, duration, paragraph } from "../text";

const NONE = "The cost of compiling was not measured apart. 'inductoscope profile --compile SCRIPT' does, with an empty cache and with a full one.";

export function CompileTime({ index }: { index: Index }): JSX.Element {
  const chunk = useChunk(index.costs?.chunk ?? "", readCostsChunk);
  return (
    <div class="run-time">
      <h1>Compile time</h1>
      <Loaded chunk={chunk} none={NONE}>
        {(costs) => <Shown costs={costs} />}
      </Loaded>
    </div>
  );
}

function Shown({ costs }: { costs: Costs }): JSX.Element {
  return (
    <>
      <p class="prose lead">{paragraph(costs.headline)}</p>
      <p class="muted">
        Measured: {duration(costs.cold)} with an empty cache
        {costs.warm === null ? "; a run with a full one was not measured" : `, ${duration(costs.warm)} with a full one`}. Noise: {paragraph(costs.noise)}
      </p>
      <section aria-labelledby="stage-costs" class="measured-kernels">
        <h2 id="stage-costs">By stage</h2>
        <DataTable label="Stages" rows={costs.stages} columns={STAGES} sortedBy={{ id: "own", desc: true }} empty="No stage was timed." minWidth={700} />
      </section>
    </>
  );
}

const timed = (id: string, title: string, value: (row: StageCost) => number | null): Column<StageCost> => ({
  id, title, width: 14, numeric: true, value, show: (row) => duration(value(row)),
});

const STAGES: Column<StageCost>[] = [
  { id: "stage", title: "Stage", width: 20, value: (row) => row.stage },
  timed("own", "In it alone", (row) => row.own),
  timed("total", "With inner stages", (row) => row.total),
  { ...timed("warm", "Alone, full cache", (row) => row.warm), optional: true },
  { id: "entered", title: "Times entered", width: 10, numeric: true, value: (row) => row.entered },
  {
    id: "exponent",
    title: "Growth exponent",
    width: 14,
    numeric: true,
    value: (row) => row.exponent,
    show: (row) => decimal(row.exponent),
    optional: true,
  },
];
