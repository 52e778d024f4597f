/** What `inductoscope profile --memory` measured: memory over one step, and what is alive at its peak. */

import type { JSX } from "preact";
import type { AliveBlock, Memory, MemoryChange, MemoryStep } from "../contract";
import { readMemoryChunk } from "../contract";
import { useChunk } from "../data";
import { Badge, Choices, Loaded, Select } from "../parts";
import { type Route, adjust } from "../route";
import type { Index } from "../schema";
import { type Column, DataTable } from "../table";
import { amount, brief, bytes, decimal, duration, paragraph } from "../text";
import { MemoryCurve } from "./memory_curve";

const NONE = "Memory was not measured. 'inductoscope profile --memory SCRIPT' traces it and keeps the result in its recording.";
const EAGER = "eager";

export function MemoryView({ index, route }: { index: Index; route: Route }): JSX.Element {
  const chunk = useChunk(index.memory?.chunk ?? "", readMemoryChunk);
  return (
    <div class="run-time">
      <h1>Memory</h1>
      <Loaded chunk={chunk} none={NONE}>
        {(memory) => <Shown memory={memory} route={route} />}
      </Loaded>
    </div>
  );
}

function Shown({ memory, route }: { memory: Memory; route: Route }): JSX.Element {
  const step = memory.steps[route.position("step") ?? 0] ?? memory.steps[0];
  return (
    <>
      <p class="prose lead">{paragraph(memory.headline)}</p>
      {step && <p class="muted">Measured: every allocation and free from one compiled call to the next.</p>}
      {memory.steps.length > 1 && step && (
        <Select
          label="Function"
          value={String(memory.steps.indexOf(step))}
          options={memory.steps.map((one, place): [string, string] => [String(place), titleOf(one)])}
          onChoose={(value) => adjust({ step: value })}
        />
      )}
      {step && <Step step={step} route={route} />}
      {memory.tried.length > 0 && <Tried rows={memory.tried} />}
      <ul class="notes">
        {memory.notes.map((note, place) => (
          <li key={place}>{paragraph(note)}</li>
        ))}
      </ul>
    </>
  );
}

function titleOf(step: MemoryStep): string {
  const place = step.place.split("/").pop() ?? "";
  return `${brief(step.function, 60)}${place && ` (${brief(place, 60)})`}, call ${step.call}`;
}

function Step({ step, route }: { step: MemoryStep; route: Route }): JSX.Element {
  const isEager = route.get("run") === EAGER && step.eager !== null;
  const course = (isEager && step.eager) || step.compiled;
  return (
    <>
      <section aria-labelledby="memory-title">
        <h2 id="memory-title">{titleOf(step)}, over time</h2>
        <MemoryCurve step={step} />
      </section>
      <section aria-labelledby="alive-title" class="measured-kernels">
        <h2 id="alive-title">
          Alive at the peak of {bytes(course.peak)}, {duration(course.peak_seconds)} after the call began
        </h2>
        {step.eager && (
          <Choices
            label="Run"
            value={isEager ? EAGER : "compiled"}
            choices={[{ value: "compiled", label: "Compiled" }, { value: EAGER, label: "In eager" }]}
            onChoose={(run) => adjust({ run })}
          />
        )}
        {course.unknown > 0 && <p class="muted">{bytes(course.unknown)} of it were there before, and nothing is known of them.</p>}
        {course.left_out > 0 && (
          <p class="muted">
            The smallest blocks of the step, {amount(course.left_out)}, were not kept: {bytes(course.left_out_bytes)} of the peak are
            not in this table.
          </p>
        )}
        <DataTable
          label="Alive at the peak"
          rows={course.alive}
          columns={BLOCKS}
          filter={route.get("q")}
          onFilter={(q) => adjust({ q })}
          sortedBy={{ id: "bytes", desc: true }}
          empty="No block is known."
          minWidth={960}
        />
      </section>
    </>
  );
}

function life(row: AliveBlock): string {
  if (row.begin === null) return row.end === null ? "all the time" : `until ${duration(row.end)}`;
  return row.end === null ? `from ${duration(row.begin)} on` : `${duration(row.begin)} to ${duration(row.end)}`;
}

const BLOCKS: Column<AliveBlock>[] = [
  { id: "bytes", title: "Bytes", width: 9, numeric: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
  { id: "kind", title: "What it is", width: 19, value: (row) => row.kind },
  { id: "name", title: "Name", width: 18, value: (row) => row.name },
  { id: "operation", title: "Made by", width: 14, value: (row) => row.operation },
  { id: "source", title: "Source", width: 18, value: (row) => row.source.split("/").pop() ?? "" },
  { id: "life", title: "In use", width: 18, value: (row) => row.begin ?? -1, show: life },
  { id: "graph", title: "Graph", width: 18, value: (row) => row.graph, optional: true },
];

function Tried({ rows }: { rows: MemoryChange[] }): JSX.Element {
  return (
    <section aria-labelledby="tried-title">
      <h2 id="tried-title">Tried for less memory, each in its own process</h2>
      <ul class="findings">
        {rows.map((row, place) => (
          <li key={place} class="finding">
            <h3>
              <span class="mono">{brief(row.change, 200)}</span>
              {row.helps && <Badge tone="good">less memory</Badge>}
            </h3>
            <p>
              {row.peak === null ? "Its peak was not measured" : `Peak ${bytes(row.peak)}, ${decimal(row.ratio)} of what it was`}
              {row.time_ratio !== null && `; time ${decimal(row.time_ratio)} of what it was (${brief(row.verdict, 60)})`}. {paragraph(row.note)}
            </p>
            <p class="muted">Tried because {paragraph(row.why)}.</p>
          </li>
        ))}
      </ul>
    </section>
  );
}
