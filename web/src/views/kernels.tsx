/** Every kernel of the recording; a row leads to its code. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type Route, adjust, go } from "../route";
import type { KernelRow } from "../contract";
import { graphsFromCache } from "../graphs";
import type { Index } from "../schema";
import { type Column, DataTable } from "../table";
import { bytes, decimal, duration, plural } from "../text";

function columns(index: Index): Column<KernelRow>[] {
  return [
    { id: "name", title: "Kernel", width: 38, value: (row) => row.id || row.name },
    { id: "made", title: "How", width: 14, value: (row) => row.made },
    { id: "calls", title: "Call sites", width: 11, numeric: true, value: (row) => row.calls, show: (row) => decimal(row.calls) },
    { id: "language", title: "Language", width: 13, value: (row) => row.language },
    {
      id: "graph",
      title: "Graph",
      width: 14,
      value: (row) => (row.graph === null ? "" : (index.graphs[row.graph]?.key ?? "")),
    },
    { id: "operations", title: "Operations", width: 30, value: (row) => row.operations },
    { id: "lines", title: "Lines", width: 9, numeric: true, value: (row) => row.lines, show: (row) => decimal(row.lines) },
    counted("bytes", "Bytes, modelled", (row) => row.bytes, bytes),
    {
      id: "seconds",
      title: "Compile",
      width: 12,
      numeric: true,
      optional: true,
      value: (row) => row.seconds,
      show: (row) => duration(row.seconds),
    },
    counted("registers", "Registers", (row) => row.registers, decimal),
    counted("spills", "Spills", (row) => row.spills, decimal),
    counted("shared", "Shared", (row) => row.shared, bytes),
  ];
}

/** A column of numbers that only compiled GPU kernels have. */
function counted(
  id: string,
  title: string,
  value: (row: KernelRow) => number | null,
  show: (value: number | null) => string,
): Column<KernelRow> {
  return { id, title, width: Math.max(11, title.length + 3), numeric: true, value, show: (row) => show(value(row)), optional: true };
}

export function Kernels({ index, route }: { index: Index; route: Route }): JSX.Element {
  const shown = useMemo(() => columns(index), [index]);
  return (
    <div class="fill">
      <h1>Kernels</h1>
      <p class="muted">{counts(index)}</p>
      <DataTable
        label="Kernels"
        rows={index.kernels}
        columns={shown}
        filter={route.get("q")}
        onFilter={(q) => adjust({ q })}
        onOpen={open}
        empty="No kernel was generated, or none was recorded."
        minWidth={1240}
      />
    </div>
  );
}

/** Compiled, reused and library calls counted apart; compile time once per compile. */
function counts(index: Index): string {
  const rows = index.kernels;
  const cached = graphsFromCache(index);
  const made = (wanted: string): number => rows.filter((row) => row.made === wanted).length;
  const generated = rows.filter((row) => row.language !== "extern");
  const sites = generated.reduce((sum, row) => sum + row.calls, 0);
  const seconds = rows.reduce((sum, row) => sum + (row.seconds ?? 0), 0);
  return [
    `${plural(generated.length, "generated kernel")} at ${plural(sites, "call site")}`,
    made("compiled") > 0 && `${plural(made("compiled"), "kernel")} compiled in ${duration(seconds)}`,
    made("reused") > 0 && `${made("reused")} reused from another graph`,
    made("from a cache") > 0 && `${made("from a cache")} from a cache`,
    made("library call") > 0 && plural(made("library call"), "library call site"),
    cached > 0 && `none generated for ${plural(cached, "graph")} from a cache`,
  ]
    .filter(Boolean)
    .join("; ");
}

export function open(row: KernelRow): void {
  if (row.graph !== null) go("explorer", { graph: row.graph, kernel: row.id || row.name });
}

