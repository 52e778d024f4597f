/** Compile time by process and worker: a flame chart, and the same spans as a table. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { readTimeline } from "../chunks";
import type { Span, Timeline as Spans } from "../contract";
import { useChunk } from "../data";
import { Choices, Empty, Loaded } from "../parts";
import { type Route, address, adjust } from "../route";
import type { Index } from "../schema";
import { type Column, DataTable } from "../table";
import { brief, duration } from "../text";
import { STAGE_COLOURS } from "../flame";
import { FlameChart } from "./flame_chart";
import { FlameSum } from "./flame_sum";

const NONE = "No stage times were recorded.";

export function Timeline({ index, route }: { index: Index; route: Route }): JSX.Element {
  const chunk = useChunk(index.timeline.spans > 0 ? index.timeline.chunk : "", readTimeline);
  return (
    <div class="fill">
      <h1>Timeline</h1>
      <Loaded chunk={chunk} none={NONE}>
        {(value) => (value.spans.length ? <Chart index={index} spans={value} added={route.get("as") === "sum"} /> : <Empty>{NONE}</Empty>)}
      </Loaded>
    </div>
  );
}

/** A colour for each stage that has spans, in the order of the pipeline. */
function stageColours(index: Index, spans: Spans): Map<string, number> {
  const used = new Set(spans.spans.map((span) => span.stage));
  const known = index.stages.map((stage) => stage.name).filter((name) => used.has(name));
  return new Map([...new Set([...known, ...used])].map((name, place) => [name, place % STAGE_COLOURS]));
}

function Chart({ index, spans, added }: { index: Index; spans: Spans; added: boolean }): JSX.Element {
  const [chosen, setChosen] = useState<Span | null>(null);
  const colours = useMemo(() => stageColours(index, spans), [index, spans]);
  const columns = useMemo(() => spanColumns(index, spans), [index, spans]);
  const [filter, setFilter] = useState("");
  return (
    <div class="timeline">
      <Choices
        label="Spans"
        value={added ? "sum" : ""}
        choices={[
          { value: "", label: "In order of time" },
          { value: "sum", label: "Added up (flame graph)" },
        ]}
        onChoose={(value) => adjust({ as: value })}
      />
      <ul class="legend" aria-label="Stages">
        {[...colours.keys()].slice(0, 24).map((stage) => (
          <li key={stage}>
            <span class={`swatch stage-${colours.get(stage)}`} aria-hidden="true" />
            {brief(stage, 40) || "(no stage)"}
          </li>
        ))}
      </ul>
      {added ? (
        <FlameSum index={index} spans={spans} colours={colours} />
      ) : (
        <>
          <FlameChart spans={spans} colours={colours} chosen={chosen} onChoose={setChosen} />
          <ChosenSpan index={index} spans={spans} span={chosen} />
        </>
      )}
      <DataTable
        label="Spans"
        rows={spans.spans}
        columns={columns}
        filter={filter}
        onFilter={setFilter}
        sortedBy={{ id: "seconds", desc: true }}
        onOpen={setChosen}
        chosen={(span) => span === chosen}
        empty={NONE}
        minWidth={720}
      />
    </div>
  );
}

function ChosenSpan({ index, spans, span }: { index: Index; spans: Spans; span: Span | null }): JSX.Element {
  if (!span) return <p class="muted chosen-span">Select a span for details. Zoom with the wheel or + and −, move by dragging or with the arrow keys, press 0 to show all.</p>;
  const graph = span.graph === null ? undefined : index.graphs[span.graph];
  return (
    <p class="chosen-span" role="status">
      <strong>{brief(span.stage, 60)}</strong> {brief(span.label, 120)}: {duration(span.seconds)}, from{" "}
      {duration(span.start)} on, in {brief(spans.lanes[span.lane]?.name ?? "", 80) || "an unnamed lane"}.{" "}
      {graph && <a href={address("explorer", { graph: graph.index })}>Open {brief(graph.key, 60)}</a>}
    </p>
  );
}

function spanColumns(index: Index, spans: Spans): Column<Span>[] {
  const key = (span: Span): string => (span.graph === null ? "" : (index.graphs[span.graph]?.key ?? ""));
  return [
    { id: "stage", title: "Stage", width: 18, value: (span) => span.stage },
    { id: "label", title: "What", width: 30, value: (span) => span.label || key(span) },
    {
      id: "seconds",
      title: "Time",
      width: 10,
      numeric: true,
      value: (span) => span.seconds,
      show: (span) => duration(span.seconds),
    },
    {
      id: "start",
      title: "Begins at",
      width: 10,
      numeric: true,
      value: (span) => span.start,
      show: (span) => duration(span.start),
    },
    { id: "lane", title: "Process or worker", width: 26, value: (span) => spans.lanes[span.lane]?.name ?? "" },
  ];
}
