/** The fusion ledger: every pair that could have been one kernel, and what became of it. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type Decision, readLedger } from "../chunks";
import { useChunk } from "../data";
import { graphByKey } from "../graphs";
import { CONFIDENCES, type LedgerCause } from "../contract";
import { Badge, Choices, Empty, Loaded, Select, Sureness } from "../parts";
import { type Route, address, adjust } from "../route";
import type { Index } from "../schema";
import { type Column, DataTable } from "../table";
import { amount, brief, bytes, decimal, duration, paragraph, plural } from "../text";

const NONE =
  "No pair of nodes was considered for fusion: a graph with one node has no pairs, and a graph from the cache is not scheduled.";
const TONES: Record<string, string> = { fused: "good", refused: "warning", "never tried": "note" };

/** An upper bound must not read as a fact. */
function bounded(row: { at_most: boolean; bytes: number | null }, value: string): string {
  return row.at_most && row.bytes && value ? `at most ${value}` : value;
}

function bytesText(row: Decision): string {
  return bounded(row, bytes(row.bytes));
}

function timeText(row: Decision): string {
  return row.microseconds === null ? "" : bounded(row, duration(row.microseconds / 1e6));
}

const COLUMNS: Column<Decision>[] = [
  {
    id: "pair",
    title: "Pair",
    width: 16,
    value: (row) => `${row.first} ${row.second}`,
    show: (row) => `${brief(row.first, 40)} + ${brief(row.second, 40)}`,
  },
  {
    id: "outcome",
    title: "Outcome",
    width: 15,
    value: (row) => row.outcome,
    show: (row) => <Badge tone={TONES[row.outcome]}>{brief(row.outcome, 30)}</Badge>,
  },
  { id: "bytes", title: "Bytes, modelled", width: 17, numeric: true, value: (row) => row.bytes, show: bytesText },
  {
    id: "time",
    title: "Time, modelled",
    width: 15,
    numeric: true,
    optional: true,
    value: (row) => row.microseconds,
    show: timeText,
  },
  {
    id: "confidence",
    title: "How sure",
    width: 12,
    value: (row) => row.confidence,
    show: (row) => <Sureness confidence={row.confidence} />,
  },
  {
    id: "operations",
    title: "Operations",
    width: 20,
    value: (row) => `${row.first_operations.join(" ")} + ${row.second_operations.join(" ")}`,
  },
  { id: "reason", title: "Reason", width: 32, value: (row) => row.reason },
  { id: "kind", title: "Kind", width: 15, value: (row) => row.kind || row.relation },
  { id: "score", title: "Score", width: 9, numeric: true, optional: true, value: (row) => row.score, show: (row) => decimal(row.score) },
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
  const cause = route.get("cause");
  const kept = useMemo(
    () => rows.filter((row) => fits(row, outcome, graph, node) && (!cause || causeName(row) === cause)),
    [rows, outcome, graph, node, cause],
  );
  const chosen = rows[route.position("row") ?? -1];
  return (
    <div class="with-details">
      <DataTable
        sortedBy={{ id: "bytes", desc: true }}
        label="Fusion decisions"
        rows={kept}
        columns={COLUMNS}
        filter={route.get("q")}
        onFilter={(q) => adjust({ q })}
        onOpen={(row) => adjust({ row: row.row })}
        chosen={(row) => row === chosen}
        controls={<Controls index={index} rows={rows} outcome={outcome} graph={graph} node={node} cause={cause} />}
        empty="No decision matches these filters."
        minWidth={1280}
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

/** Why a pair is not one kernel, in the address. */
export function causeName({ outcome, condition }: { outcome: string; condition: string }): string {
  return `${outcome}: ${condition}`;
}

/** The words of `inductoscope fusion`: what the pairs of one cause cost, nothing counted twice. */
export function causeText(cause: LedgerCause): string {
  const moved = cause.bytes ? `, ${bounded(cause, bytes(cause.bytes))} moved again` : "";
  return `${brief(cause.condition, 90)}: ${plural(cause.pairs, "pair")}${moved}`;
}

interface ControlProperties {
  index: Index;
  rows: Decision[];
  outcome: string;
  graph: string;
  node: string;
  cause: string;
}

function Controls({ index, rows, outcome, graph, node, cause }: ControlProperties): JSX.Element {
  const keys = useMemo(() => [...new Set(rows.map((row) => row.graph))], [rows]);
  const { causes, fused, refused, never } = index.ledger;
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
      {causes.length > 0 && (
        <Select
          label="Cause"
          value={cause}
          options={[["", "all causes"], ...causes.map((one): [string, string] => [causeName(one), causeText(one)])]}
          onChoose={(name) => adjust({ cause: name, row: null })}
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
        {brief([decision.relation, decision.kind].filter(Boolean).join(", "), 80)}{" "}
        <Sureness confidence={decision.confidence} />
      </p>
      {endsTogether(decision) && (
        <p class="prose">All the same, both ended up in one function: {brief(decision.kernels[0] ?? "", 120)}.</p>
      )}
      {graph && <Leads graph={graph.index} decision={decision} />}
      <dl class="facts-list narrow">
        <Fact name="Reason" value={decision.reason} />
        <Fact name="How sure" value={CONFIDENCES[decision.confidence]} />
        <Fact name="What to change" value={decision.what_to_change} />
        <Fact name="Condition" value={decision.condition} />
        <Fact name="Values" value={decision.values.join("\n")} mono />
        <Fact name="In torch's words" value={decision.torch} mono />
        <Fact name="First" value={decision.first_operations.join(", ")} mono />
        <Fact name="Second" value={decision.second_operations.join(", ")} mono />
        <Fact name={decision.outcome === "fused" ? "Bytes saved" : "Extra bytes moved"} value={bytesText(decision)} />
        <Fact name="Time to move them" value={timeText(decision)} />
        <Fact name="Buffers" value={decision.buffers.join(", ")} mono />
        <Fact name="Score" value={decimal(decision.score)} />
        <Fact name="Fusion rounds" value={decision.rounds.join(", ")} />
        <Fact name="Final groups" value={unique(decision.groups).join("\n")} mono />
        <Fact name="Kernels" value={unique(decision.kernels).join("\n")} mono />
        <Fact name="Graph" value={decision.graph} mono />
      </dl>
    </aside>
  );
}

/** C++ code has one function for nodes that share no loop. */
function endsTogether(decision: Decision): boolean {
  const [first, second] = decision.kernels;
  return decision.outcome !== "fused" && Boolean(first) && first === second;
}

function unique(names: string[]): string[] {
  return [...new Set(names.filter(Boolean))];
}

/** Ways to see both nodes where they are. */
function Leads({ graph, decision }: { graph: number; decision: Decision }): JSX.Element {
  const operations = [...decision.first_operations, ...decision.second_operations];
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
