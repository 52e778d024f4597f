/** The table of compiles, on the overview and beside the details of one. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Badge } from "../parts";
import { go } from "../route";
import type { Compile } from "../contract";
import { type Column, DataTable } from "../table";
import { brief, duration } from "../text";

export interface CompileRow {
  compile: Compile;
  place: number;
}

/** A compile that says nothing of its end was cut off, or is of a version that we do not know. */
export function outcomeTone(outcome: string): string {
  if (outcome === "compiled") return "good";
  return outcome === "raised" ? "error" : "warning";
}

const COLUMNS: Column<CompileRow>[] = [
  { id: "id", title: "Compile", width: 10, value: (row) => row.compile.id || `#${row.place}` },
  { id: "function", title: "Function", width: 16, value: (row) => row.compile.function },
  { id: "place", title: "Source", width: 22, value: (row) => row.compile.place },
  {
    id: "outcome",
    title: "Outcome",
    width: 13,
    value: (row) => row.compile.outcome,
    show: ({ compile }) => <Badge tone={outcomeTone(compile.outcome)}>{brief(compile.outcome, 40)}</Badge>,
  },
  {
    id: "seconds",
    title: "Time",
    width: 9,
    numeric: true,
    value: (row) => row.compile.seconds,
    show: (row) => duration(row.compile.seconds),
  },
  { id: "graphs", title: "Graphs", width: 10, numeric: true, value: (row) => row.compile.graphs.length },
  { id: "guards", title: "Guards", width: 10, numeric: true, value: (row) => row.compile.guard_count },
  { id: "breaks", title: "Breaks", width: 10, numeric: true, value: (row) => row.compile.breaks.length },
  {
    id: "recompile",
    title: "Recompiled because",
    width: 24,
    value: (row) => row.compile.recompile?.reasons.join("; ") || row.compile.recompile?.limit || row.compile.reason,
  },
];

interface Properties {
  compiles: Compile[];
  rows?: CompileRow[];
  chosen?: number;
  controls?: JSX.Element;
}

export function CompileTable({ compiles, rows, chosen, controls }: Properties): JSX.Element {
  const [filter, setFilter] = useState("");
  return (
    <DataTable
      label="Compiles"
      rows={rows ?? compiles.map((compile, place) => ({ compile, place }))}
      columns={COLUMNS}
      filter={filter}
      onFilter={compiles.length > 8 ? setFilter : undefined}
      onOpen={(row) => go("compiles", { compile: row.place })}
      chosen={chosen === undefined ? undefined : (row) => row.place === chosen}
      controls={controls}
      empty="Nothing was compiled, or nothing of it was recorded."
      minWidth={1000}
    />
  );
}
