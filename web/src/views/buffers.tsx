/** The buffers of a graph: who makes and reads each, and which take over another's memory. */

import type { ComponentChildren, JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type BufferRow, readBuffersChunk } from "../contract";
import { useChunk } from "../data";
import { GraphPicker, chosenGraph } from "../graphs";
import { Choices, Empty, Loaded } from "../parts";
import { type Route, address, adjust, go } from "../route";
import type { Graph, Index } from "../schema";
import { type Column, DataTable } from "../table";
import { brief, bytes, plural } from "../text";

const KINDS: Record<string, { label: string; holds: (row: BufferRow) => boolean }> = {
  all: { label: "All", holds: () => true },
  reused: { label: "Reused memory", holds: (row) => Boolean(row.takes_over || row.given_to) },
  buffers: { label: "Buffers", holds: (row) => row.kind === "buffer" },
  inputs: { label: "Inputs and constants", holds: (row) => row.kind !== "buffer" },
};

export function Buffers({ index, route }: { index: Index; route: Route }): JSX.Element {
  const graph = chosenGraph(index, route);
  if (!graph) return <Empty>No graph was recorded, so there are no buffers.</Empty>;
  return <BuffersOfGraph index={index} route={route} graph={graph} />;
}

function BuffersOfGraph({ index, route, graph }: { index: Index; route: Route; graph: Graph }): JSX.Element {
  const chunk = useChunk(graph.buffers, readBuffersChunk);
  return (
    <div class="fill">
      <h1>Buffers</h1>
      <div class="toolbar">
        <GraphPicker index={index} graph={graph} onChoose={(one) => go("buffers", { graph: one.index })} />
        {chunk.state === "ready" && <span class="count">{balance(chunk.value)}</span>}
      </div>
      <Loaded chunk={chunk} none="The buffers of this graph were not recorded.">
        {(rows) => <BufferTable rows={rows} route={route} graph={graph} />}
      </Loaded>
    </div>
  );
}

function balance(rows: BufferRow[]): string {
  const made = rows.filter((row) => row.kind === "buffer" && !row.part_of);
  const fresh = made.filter((row) => !row.takes_over);
  const sum = (some: BufferRow[]): string => bytes(some.reduce((total, row) => total + (row.bytes ?? 0), 0));
  return `${plural(made.length, "buffer")} of ${sum(made)} in all; ${plural(made.length - fresh.length, "takes", "take")} over memory, so ${sum(fresh)} are allocated`;
}

function BufferTable({ rows, route, graph }: { rows: BufferRow[]; route: Route; graph: Graph }): JSX.Element {
  const kind = KINDS[route.get("kind")] ? route.get("kind") : "all";
  const shown = useMemo(() => rows.filter(KINDS[kind]!.holds), [rows, kind]);
  const columns = useMemo(() => columnsOf(), []);
  const chosen = rows.find((row) => row.name === route.get("buffer"));
  const choices = Object.entries(KINDS).map(([value, one]) => ({ value, label: `${one.label} ${rows.filter(one.holds).length}` }));
  return (
    <div class="with-details">
      <DataTable
        label="Buffers"
        rows={shown}
        columns={columns}
        filter={route.get("q")}
        onFilter={(q) => adjust({ q })}
        onOpen={(row) => adjust({ buffer: row.name })}
        chosen={(row) => row.name === chosen?.name}
        controls={<Choices label="Buffers that are shown" value={kind} choices={choices} onChoose={(value) => adjust({ kind: value })} />}
        empty="No buffer was recorded for this graph."
        minWidth={1080}
      />
      {chosen && <BufferDetails row={chosen} graph={graph} rows={rows} />}
    </div>
  );
}

function columnsOf(): Column<BufferRow>[] {
  const text = (id: keyof BufferRow, title: string, width: number): Column<BufferRow> => ({
    id,
    title,
    width,
    value: (row) => String(row[id] ?? ""),
    optional: true,
  });
  return [
    { id: "name", title: "Buffer", width: 14, value: (row) => row.name },
    text("kind", "Kind", 11),
    text("dtype", "Type", 13),
    text("size", "Size", 18),
    { id: "bytes", title: "Bytes", width: 10, numeric: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes), optional: true },
    text("operation", "Holds", 18),
    text("kernel", "Written by", 26),
    text("takes_over", "Takes over", 20),
    text("given_to", "Given to", 20),
    text("part_of", "Part of", 10),
  ];
}

function BufferDetails({ row, graph, rows }: { row: BufferRow; graph: Graph; rows: BufferRow[] }): JSX.Element {
  const facts: [string, ComponentChildren][] = [
    ["Type", row.dtype],
    ["Size", row.size],
    ["Strides", row.stride],
    ["Bytes", bytes(row.bytes)],
    ["Holds", row.operation && <OperationLinks graph={graph} names={[row.operation]} />],
    ["Led here", row.led_here.length > 0 && <OperationLinks graph={graph} names={row.led_here} />],
    ["Made by node", row.node && <NodeLinks graph={graph} names={[row.node]} />],
    ["Kernel", row.kernel && <a href={address("explorer", { graph: graph.index, kernel: row.kernel })}>{brief(row.kernel, 80)}</a>],
    ["Read by", row.read_by.length > 0 && <NodeLinks graph={graph} names={row.read_by} />],
    ["Takes over", row.takes_over && <BufferLinks rows={rows} text={row.takes_over} />],
    ["Given to", row.given_to && <BufferLinks rows={rows} text={row.given_to} />],
    ["Part of", row.part_of && <BufferLinks rows={rows} text={row.part_of} />],
  ];
  return (
    <aside class="details" aria-label="The chosen buffer">
      <header class="details-head">
        <h2 class="mono">{brief(row.name, 60)}</h2>
        <button type="button" class="small" aria-label="Close the details" onClick={() => adjust({ buffer: null })}>
          ×
        </button>
      </header>
      <dl class="facts-list narrow">
        {facts
          .filter(([, value]) => Boolean(value))
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd class="mono prose">{value}</dd>
            </div>
          ))}
      </dl>
    </aside>
  );
}

const MOST = 60;

function OperationLinks({ graph, names }: { graph: Graph; names: string[] }): JSX.Element {
  return <Links names={names} to={(op) => address("explorer", { graph: graph.index, op })} />;
}

function NodeLinks({ graph, names }: { graph: Graph; names: string[] }): JSX.Element {
  return <Links names={names} to={(node) => address("scheduler", { graph: graph.index, node, when: "before" })} />;
}

function Links({ names, to }: { names: string[]; to: (name: string) => string }): JSX.Element {
  return (
    <>
      {names.slice(0, MOST).map((name) => (
        <a key={name} class="pill" href={to(name)}>
          {brief(name, 60)}
        </a>
      ))}
      {names.length > MOST && ` and ${names.length - MOST} more`}
    </>
  );
}

/** `buf0 (in place), buf3 (memory)`: the names in it lead to their rows. */
function BufferLinks({ rows, text }: { rows: BufferRow[]; text: string }): JSX.Element {
  const known = new Set(rows.map((row) => row.name));
  return (
    <>
      {text.split(/(\w+)/).map((part, place) =>
        known.has(part) ? (
          <button key={place} type="button" class="link" onClick={() => adjust({ buffer: part, kind: null })}>
            {brief(part, 60)}
          </button>
        ) : (
          part
        ),
      )}
    </>
  );
}
