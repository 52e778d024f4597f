/** The scheduler's nodes before and after fusion, as a picture. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { readSchedule } from "../chunks";
import type { Schedule, ScheduleNode } from "../contract";
import { useChunk } from "../data";
import { GraphPicker, chosenGraph } from "../graphs";
import { arrange } from "../layout";
import { Choices, Empty, Loaded } from "../parts";
import { type Route, address, adjust, go } from "../route";
import type { Graph, Index } from "../schema";
import { amount, brief, bytes, plural } from "../text";
import { Drawing } from "./drawing";

const NONE = "No scheduler nodes were recorded for this graph: it came from the cache, or the compile did not get that far.";

export function Scheduler({ index, route }: { index: Index; route: Route }): JSX.Element {
  const graph = chosenGraph(index, route);
  if (!graph) return <Empty>No graph was recorded, so nothing was scheduled.</Empty>;
  return <ScheduleOfGraph index={index} route={route} graph={graph} />;
}

function ScheduleOfGraph({ index, route, graph }: { index: Index; route: Route; graph: Graph }): JSX.Element {
  const chunk = useChunk(graph.schedule, readSchedule);
  const when = route.get("when") === "before" ? "before" : "after";
  return (
    <div class="fill">
      <h1>Scheduler graph</h1>
      <div class="toolbar">
        <GraphPicker
          index={index}
          graph={graph}
          onChoose={(one) => go("scheduler", { graph: one.index, when: route.get("when") })}
        />
        <Choices
          label="Moment"
          value={when}
          choices={[
            { value: "before", label: "Before fusion" },
            { value: "after", label: "After fusion" },
          ]}
          onChoose={(value) => adjust({ when: value })}
        />
        {chunk.state === "ready" && <Balance schedule={chunk.value} />}
      </div>
      <Loaded chunk={chunk} none={NONE}>
        {(schedule) =>
          schedule.nodes.length ? (
            <PictureOf schedule={schedule} when={when} route={route} graph={graph} />
          ) : (
            <Empty>{NONE}</Empty>
          )
        }
      </Loaded>
    </div>
  );
}

function Balance({ schedule }: { schedule: Schedule }): JSX.Element {
  const inside = schedule.edges.filter((edge) => edge.inside);
  const saved = inside.reduce((sum, edge) => sum + (edge.bytes ?? 0), 0);
  const left = schedule.nodes.length - schedule.groups.reduce((sum, group) => sum + Math.max(group.members.length - 1, 0), 0);
  return (
    <span class="count">
      {plural(schedule.nodes.length, "node")} became {amount(Math.max(left, 0))}
      {saved > 0 && `; ${bytes(saved)} stay inside fused nodes`}
    </span>
  );
}

interface PictureProperties {
  schedule: Schedule;
  when: "before" | "after";
  route: Route;
  graph: Graph;
}

function PictureOf({ schedule, when, route, graph }: PictureProperties): JSX.Element {
  const picture = useMemo(() => arrange(schedule, when === "after"), [schedule, when]);
  const asked = route.all("node");
  const chosen = new Set(schedule.nodes.filter((node) => isAsked(node, asked)).map((node) => node.id));
  const first = schedule.nodes.find((node) => chosen.has(node.id));
  return (
    <div class="with-details">
      <Drawing
        key={`${graph.index} ${when}`}
        picture={picture}
        chosen={chosen}
        onChoose={(id) => adjust({ node: id ? [id] : null })}
      />
      {first && <NodeDetails schedule={schedule} node={first} chosen={chosen} graph={graph} />}
    </div>
  );
}

/** A fused node of the ledger is named after its group, or after its members. */
function isAsked(node: ScheduleNode, asked: string[]): boolean {
  return asked.includes(node.id) || (node.group !== "" && asked.includes(node.group));
}

interface DetailProperties {
  schedule: Schedule;
  node: ScheduleNode;
  chosen: Set<string>;
  graph: Graph;
}

function NodeDetails({ schedule, node, chosen, graph }: DetailProperties): JSX.Element {
  const nodes = schedule.nodes.filter((one) => chosen.has(one.id));
  const operations = [...new Set(nodes.flatMap((one) => one.operations))];
  return (
    <aside class="details" aria-label="The chosen node">
      <header class="details-head">
        <h2 class="mono">{nodes.map((one) => brief(one.id, 40)).join(" + ")}</h2>
        <button type="button" class="small" aria-label="Close the details" onClick={() => adjust({ node: null })}>
          ×
        </button>
      </header>
      <p class="leads">
        {operations.length > 0 && (
          <a class="button" href={address("explorer", { graph: graph.index, op: operations })}>
            Show in the linked panes
          </a>
        )}
        <a class="button" href={address("ledger", { key: graph.key, node: node.id })}>
          Its fusion decisions
        </a>
      </p>
      {nodes.slice(0, 20).map((one) => (
        <NodeFacts key={one.id} schedule={schedule} node={one} />
      ))}
    </aside>
  );
}

function NodeFacts({ schedule, node }: { schedule: Schedule; node: ScheduleNode }): JSX.Element {
  const reads = schedule.edges.filter((edge) => edge.reader === node.id);
  const writes = schedule.edges.filter((edge) => edge.writer === node.id);
  const facts: [string, string][] = [
    ["Node", node.id],
    ["Kind", node.kind],
    ["Operations", node.operations.join(", ")],
    ["Kernel", node.kernel],
    ["Fused as", node.group],
    ["Bytes", bytes(node.bytes)],
    ["Reads", reads.map((edge) => `${edge.buffer || "?"} of ${edge.writer} ${bytes(edge.bytes)}`).join("\n")],
    ["Is read by", writes.map((edge) => `${edge.reader} ${edge.inside ? "(fused)" : ""}`).join("\n")],
  ];
  return (
    <dl class="facts-list narrow">
      {facts
        .filter(([, value]) => value.trim() !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="mono prose">{value.split("\n").map((line) => brief(line, 120)).slice(0, 30).join("\n")}</dd>
          </div>
        ))}
    </dl>
  );
}
