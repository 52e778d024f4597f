/** What `inductoscope profile` measured: kernels against the machine's limits, and one usual call. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type Profile, type ProfiledKernel, readProfileChunk } from "../contract";
import { useChunk } from "../data";
import { Empty, Loaded, Select } from "../parts";
import { type Route, adjust, go } from "../route";
import type { Index } from "../schema";
import { type Column, DataTable } from "../table";
import { brief, bytes, decimal, duration, paragraph, plural } from "../text";
import { Roofline } from "./roofline";
import { Waterfall } from "./waterfall";

const NONE = "Run time was not measured. 'inductoscope profile SCRIPT' times every kernel and keeps the result in its recording.";

export function RunTime({ index, route }: { index: Index; route: Route }): JSX.Element {
  const chunk = useChunk(index.profile?.chunk ?? "", readProfileChunk);
  return (
    <div class="run-time">
      <h1>Run time</h1>
      <Loaded chunk={chunk} none={NONE}>
        {(profile) => (profile.kernels.length ? <Shown index={index} profile={profile} route={route} /> : <Empty>{NONE}</Empty>)}
      </Loaded>
    </div>
  );
}

function Shown({ index, profile, route }: { index: Index; profile: Profile; route: Route }): JSX.Element {
  const usual = profile.graphs.filter((graph) => graph.kernels.length > 0);
  const call = usual[route.position("call") ?? 0] ?? usual[0];
  const columns = useMemo(() => kernelColumns(index), [index]);
  return (
    <>
      <p class="prose lead">{paragraph(profile.headline)}</p>
      <p class="muted">
        Times are medians of measured calls; bytes, operations and the floor are modelled; limits were measured.
      </p>
      <Roofline profile={profile} />
      {call && (
        <section aria-labelledby="call-title">
          <h2 id="call-title">One usual call, kernel by kernel, measured</h2>
          {usual.length > 1 && (
            <Select
              label="Graph"
              value={String(usual.indexOf(call))}
              options={usual.map((graph, place): [string, string] => [
                String(place),
                [graph.key, graph.function, graph.sizes].filter(Boolean).join(", "),
              ])}
              onChoose={(value) => adjust({ call: value })}
            />
          )}
          <Waterfall graph={call} />
        </section>
      )}
      <section aria-labelledby="measured-title" class="measured-kernels">
        <h2 id="measured-title">Kernels, by time lost against the machine's limit</h2>
        <DataTable
          label="Measured kernels"
          rows={profile.kernels}
          columns={columns}
          filter={route.get("q")}
          onFilter={(q) => adjust({ q })}
          sortedBy={{ id: "lost", desc: true }}
          onOpen={(row) => row.graph !== null && go("explorer", { graph: row.graph, kernel: row.id })}
          empty="No kernel matches."
          minWidth={1900}
        />
      </section>
      <ul class="notes">
        {profile.machines.map((machine, place) => (
          <li key={place}>
            Limits of {brief(machine.device, 40)} {brief(machine.name, 80)}, {plural(machine.threads, "thread")}, measured{" "}
            {brief(machine.measured, 40)}: copy {decimal(machine.bandwidth / 1e9)} GB/s beyond the caches,{" "}
            {decimal(machine.cached_bandwidth / 1e9)} GB/s in them.
          </li>
        ))}
        {profile.notes.map((note, place) => (
          <li key={`note-${place}`}>{paragraph(note)}</li>
        ))}
      </ul>
    </>
  );
}

function kernelColumns(index: Index): Column<ProfiledKernel>[] {
  const timed = (id: string, title: string, width: number, value: (row: ProfiledKernel) => number | null): Column<ProfiledKernel> => ({
    id, title, width, numeric: true, value, show: (row) => duration(value(row)),
  });
  return [
    { id: "name", title: "Kernel", width: 28, value: (row) => row.name },
    timed("lost", "Lost, modelled", 14, (row) => row.lost),
    timed("median", "One call", 10, (row) => row.median),
    {
      id: "spread",
      title: "Quartiles",
      width: 17,
      value: (row) => row.high - row.low,
      show: (row) => `${duration(row.low)} to ${duration(row.high)}`,
    },
    { id: "calls", title: "Calls", width: 8, numeric: true, value: (row) => row.calls },
    timed("total", "All calls", 10, (row) => row.total),
    timed("floor", "Floor, modelled", 14, (row) => row.floor),
    { id: "limit", title: "Limited by", width: 11, value: (row) => row.limit },
    {
      id: "bytes",
      title: "Bytes, modelled",
      width: 15,
      numeric: true,
      value: (row) => row.bytes,
      show: (row) => bytes(row.bytes),
    },
    {
      id: "flops",
      title: "Operations, modelled",
      width: 18,
      numeric: true,
      value: (row) => row.flops,
      show: (row) => decimal(row.flops),
    },
    { id: "operations", title: "Computes", width: 20, value: (row) => row.operations },
    { id: "places", title: "Source", width: 20, value: (row) => row.places.map((place) => place.split("/").pop()).join(", ") },
    { id: "graph", title: "Graph", width: 12, value: (row) => [index.graphs[row.graph ?? -1]?.key ?? "", row.sizes].filter(Boolean).join(", ") },
  ];
}
