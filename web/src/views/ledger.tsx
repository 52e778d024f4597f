/** The fusion ledger: every pair that could have been one kernel, and what became of it. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type Decision, readLedger } from "../chunks";
import { useChunk } from "../data";
import { graphByKey } from "../graphs";
import { Badge, Choices, Empty, Loaded, Select } from "../parts";
import { type Route, address, adjust } from "../route";
import type { Index } from "../schema";
import { type Column, DataTable } from "../table";
import { amount, brief, bytes, decimal, duration, paragraph } from "../text";

const NONE = 
  "No pair of nodes was considered for fusion in what was recorded: graphs of one node have no pairs, and graphs from a cache are not scheduled.";
const TONES: Record<string, string> = { fused: "good", refused: "warning", "never tried": "note" };

const COLUMNS: Column<Decision>[] = [
  {
    id: "pair",
    title: "Pair",
    width: 18,
    value: (row) => `${row.first} ${row.second}`,
    show: (row) => `${brief(row.first, 40)} + ${brief(row.second, 40)}`,
  },
  {
    id: "outcome",
    title: "Outcome",
    width: 14,
    value: (row) => row.outcome,
    show: (row) => <Badge tone={TONES[row.outcome]}>{brief(row.outcome || "unknown", 30)}</Badge>,
  },
  {
    id: "operations",
    title: "Operations",
    width: 22,
    value: (row) => `${row.firstOperations.join(" ")} + ${row.secondOperations.join(" ")}`,
  },
  { id: "reason", title: "Reason", width: 34, value: (row) => row.reason },
  { id: "kind", title: "Kind", width: 13, value: (row) => row.kind || row.relation },
  { id: "bytes", title: "Bytes", width: 9, numeric: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
  {
    id: "time",
    title: "Costs",
    width: 9,
    numeric: true,
    optional: true,
    value: (row) => row.microseconds,
    show: (row) => (row.microseconds === null ? "" : duration(row.microseconds / 1e6)),
  },
  { id: "score", title: "Score", width: 8, numeric: true, optional: true, value: (row) => row.score, show: (row) => decimal(row.score) },
  { id: "graph", title: "Graph", width: 12, value: (row) => row.graph },
];

export function Ledger({ index, route }: { index: Index; route: Route }): JSX.Element {
  const { fused, refused, never } = index.ledger;
  const chunk = useChunk(fused + refused + never > 0 ? index.ledger.chunk : "", readLedger);
  return (
    <div class="fill">
      <h1>Fusion ledger</h1>
      <Loaded chunk={chunk} none={NONE}>
        {(rows) => (rows.length ? <Rows index={index} rows={rows} route={route} /> : <Empty>{NONE}</Empty>)}
      </Loaded>
    </div>
  );
}

function Rows({ index, rows, route }: { index: Index; rows: Decision[]; route: Route }): JSX.Element {
  const outcome = route.get("outcome");
  const graph = route.get("key");
  const node = route.get("node");
  const kept = useMemo(() => rows.filter((row) => fits(row, outcome, graph, node)), [rows, outcome, graph, node]);
  const chosen = rows[route.position("row") ?? -1];
  return (
    <div class="with-details">
      <DataTable
        label="Fusion decisions"
        rows={kept}
        columns={COLUMNS}
        filter={route.get("q")}
        onFilter={(q) => adjust({ q })}
        onOpen={(row) => adjust({ row: row.row })}
        chosen={(row) => row === chosen}
        controls={<Controls index={index} rows={rows} outcome={outcome} graph={graph} node={node} />}
        empty="No decision fits these choices."
        minWidth={1040}
      />
      {chosen && <DecisionDetails index={index} decision={chosen} />}
    </div>
  );
}

function fits(row: Decision, outcome: string, graph: string, node: string): boolean {
  if (outcome && row.outcome !== outcome) return false;
  if (graph && row.graph !== graph) return false;
  return !node || row.first === node || row.second === node;
}

interface ControlProperties {
  index: Index;
  rows: Decision[];
  outcome: string;
  graph: string;
  node: string;
}

function Controls({ index, rows, outcome, graph, node }: ControlProperties): JSX.Element {
  const keys = useMemo(() => [...new Set(rows.map((row) => row.graph))], [rows]);
  const { fused, refused, never } = index.ledger;
  return (
    <>
      <Choices
        label="Outcome"
        value={outcome}
        choices={[
          { value: "", label: `All ${amount(rows.length)}` },
          { value: "fused", label: `Fused ${amount(fused)}` },
          { value: "refused", label: `Refused ${amount(refused)}` },
          { value: "never tried", label: `Never tried ${amount(never)}` },
        ]}
        onChoose={(value) => adjust({ outcome: value, row: null })}
      />
      {keys.length > 1 && (
        <Select
          label="Graph"
          value={graph}
          options={[["", "all graphs"], ...keys.map((key): [string, string] => [key, key])]}
          onChoose={(key) => adjust({ key, row: null })}
        />
      )}
      {node && (
        <button type="button" onClick={() => adjust({ node: null })} title="Show all nodes again">
          only {brief(node, 40)} ×
        </button>
      )}
    </>
  );
}

function DecisionDetails({ index, decision }: { index: Index; decision: Decision }): JSX.Element {
  const graph = graphByKey(index, decision.graph);
  return (
    <aside class="details" aria-label="The chosen decision">
      <header class="details-head">
        <h2 class="mono">
          {brief(decision.first, 60)} + {brief(decision.second, 60)}
        </h2>
        <button type="button" class="small" aria-label="Close the details" onClick={() => adjust({ row: null })}>
          ×
        </button>
      </header>
      <p>
        <Badge tone={TONES[decision.outcome]}>{brief(decision.outcome, 30)}</Badge>{" "}
        {brief([decision.relation, decision.kind].filter(Boolean).join(", "), 80)}
      </p>
      {graph && <Leads graph={graph.index} decision={decision} />}
      <dl class="facts-list narrow">
        <Fact name="Reason" value={decision.reason} />
        <Fact name="What to change" value={decision.advice} />
        <Fact name="In torch's words" value={decision.torch} mono />
        <Fact name="First" value={decision.firstOperations.join(", ")} mono />
        <Fact name="Second" value={decision.secondOperations.join(", ")} mono />
        <Fact name={decision.outcome === "fused" ? "Bytes saved" : "Bytes moved"} value={bytes(decision.bytes)} />
        <Fact name="As time" value={decision.microseconds === null ? "" : duration(decision.microseconds / 1e6)} />
        <Fact name="Score" value={decimal(decision.score)} />
        <Fact name="Rounds" value={decision.rounds.join(", ")} />
        <Fact name="Graph" value={decision.graph} mono />
      </dl>
    </aside>
  );
}

/** Ways to see both nodes where they are. */
function Leads({ graph, decision }: { graph: number; decision: Decision }): JSX.Element {
  const operations = [...decision.firstOperations, ...decision.secondOperations];
  return (
    <p class="leads">
      <a class="button" href={address("scheduler", { graph, node: [decision.first, decision.second] })}>
        Show in the scheduler graph
      </a>
      <a class="button" href={address("explorer", { graph, op: operations })}>
        Show in the linked panes
      </a>
    </p>
  );
}

function Fact({ name, value, mono }: { name: string; value: string; mono?: boolean }): JSX.Element | null {
  if (!value) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd class={mono ? "mono prose" : "prose"}>{paragraph(value, 5000)}</dd>
    </div>
  );
}
