/** What autotuning tried, how long each choice took, and which one won. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { type Choice, type Search, readAutotuneChunk } from "../contract";
import { useChunk } from "../data";
import { graphByKey } from "../graphs";
import { Listbox } from "../listbox";
import { Badge, Empty, Loaded } from "../parts";
import { type Route, address, adjust } from "../route";
import type { Index } from "../schema";
import { type Column, DataTable } from "../table";
import { brief, decimal, duration, plural } from "../text";
import { CopyBlock } from "./verdict";

const NONE =
  "No autotuning was recorded: no operation had several implementations to choose from, or max-autotune was off.";

export function Autotune({ index, route }: { index: Index; route: Route }): JSX.Element {
  const chunk = useChunk(index.autotune.searches > 0 ? index.autotune.chunk : "", readAutotuneChunk);
  return (
    <div class="fill">
      <h1>Autotuning</h1>
      <Loaded chunk={chunk} none={NONE}>
        {(searches) => (searches.length ? <Searches index={index} searches={searches} route={route} /> : <Empty>{NONE}</Empty>)}
      </Loaded>
    </div>
  );
}

function Searches({ index, searches, route }: { index: Index; searches: Search[]; route: Route }): JSX.Element {
  const place = Math.min(route.position("search") ?? 0, searches.length - 1);
  const search = searches[place]!;
  return (
    <div class="split">
      <aside class="side" aria-label="Searches">
        <Listbox
          label="Searches"
          items={searches}
          height={44}
          chosen={new Set([place])}
          active={place}
          onChoose={(_, chosen) => adjust({ search: chosen })}
          show={(one) => (
            <span class="two-lines">
              <span class="mono">{brief(one.operation, 80)}</span>
              <span class="muted">
                {brief(one.graph, 40)}, {plural(one.choices.length, "choice")}
              </span>
            </span>
          )}
        />
      </aside>
      <SearchDetails key={place} index={index} search={search} />
    </div>
  );
}

function SearchDetails({ index, search }: { index: Index; search: Search }): JSX.Element {
  const [filter, setFilter] = useState("");
  const [open, setOpen] = useState<Choice | null>(null);
  const shared = useMemo(() => sharedSettings(search.choices), [search]);
  const columns = useMemo(() => choiceColumns(search, shared), [search, shared]);
  const graph = graphByKey(index, search.graph);
  return (
    <div class="fill">
      <h2>
        <span class="mono">{brief(search.operation, 80)}</span>{" "}
        {graph && (
          <a class="pill mono" href={address("explorer", { graph: graph.index, op: search.operation })}>
            {brief(graph.key, 60)}
          </a>
        )}
      </h2>
      <p>{summary(search)}</p>
      {search.inputs.length > 0 && <p class="mono">Tuned for {brief(search.inputs.join(" × "), 400)}</p>}
      {shared.size > 0 && <p class="muted prose">Same for all choices: {brief([...shared].join(", "), 400)}</p>}
      <div class="with-details">
        <DataTable
          label="Choices"
          rows={search.choices}
          columns={columns}
          filter={filter}
          onFilter={setFilter}
          sortedBy={{ id: "milliseconds", desc: false }}
          onOpen={setOpen}
          chosen={(choice) => (open ? choice === open : choice.name !== "" && choice.name === search.taken)}
          empty="No choice was recorded for this search."
          minWidth={760}
        />
        {open && <ChoiceDetails choice={open} onClose={() => setOpen(null)} />}
      </div>
    </div>
  );
}

function settings(choice: Choice): string[] {
  return choice.description.split(/,\s*/).filter(Boolean);
}

/** Settings that tell no choice from another; choices without any, such as libraries, do not count. */
function sharedSettings(choices: Choice[]): Set<string> {
  const lists = choices.map(settings).filter((list) => list.length > 1);
  const [first, ...rest] = lists;
  if (!first || rest.length === 0) return new Set();
  const others = rest.map((list) => new Set(list));
  return new Set(first.filter((setting) => others.every((list) => list.has(setting))));
}

function own(choice: Choice, shared: Set<string>): string[] {
  return settings(choice).filter((setting) => !shared.has(setting));
}

function ChoiceDetails({ choice, onClose }: { choice: Choice; onClose: () => void }): JSX.Element {
  return (
    <aside class="details" aria-label="The chosen choice">
      <header class="details-head">
        <h3 class="mono">{brief(choice.name, 120)}</h3>
        <button type="button" class="small" aria-label="Close the details" onClick={onClose}>
          ×
        </button>
      </header>
      <p>
        <Badge tone={TONES[choice.state]}>{brief(choice.state || "unknown", 40)}</Badge>{" "}
        {choice.milliseconds !== null && duration(choice.milliseconds / 1000)}
      </p>
      {choice.error && <CopyBlock title="Error" text={choice.error} />}
      <CopyBlock title="Configuration" text={settings(choice).join("\n") || "none recorded"} />
    </aside>
  );
}

function summary(search: Search): string {
  const states = new Map<string, number>();
  for (const choice of search.choices) {
    const state = choice.state || "state unknown";
    states.set(state, (states.get(state) ?? 0) + 1);
  }
  const counted = [...states].map(([state, found]) => `${found} ${brief(state, 40)}`).join(", ");
  const taken = result(search);
  return counted ? `${taken} ${counted}.` : taken;
}

/** Only what was timed has won. */
function result(search: Search): string {
  if (search.winner) return `The winner is ${brief(search.winner, 120)}.`;
  return search.taken ? `torch took ${brief(search.taken, 120)} without a time of it.` : "No winner was recorded.";
}

const TONES: Record<string, string> = { failed: "error", "still compiling": "warning", timed: "good" };

function choiceColumns(search: Search, shared: Set<string>): Column<Choice>[] {
  const slowest = Math.max(...search.choices.map((choice) => choice.milliseconds ?? 0), 1e-9);
  return [
    {
      id: "name",
      title: "Choice",
      width: 30,
      value: (choice) => choice.name,
      show: (choice) => (
        <>
          {brief(choice.name, 120)}{" "}
          {choice.name !== "" && choice.name === search.taken && <Badge tone="good">{search.winner ? "winner" : "taken"}</Badge>}
        </>
      ),
    },
    {
      id: "milliseconds",
      title: "Time",
      width: 20,
      numeric: true,
      value: (choice) => choice.milliseconds,
      show: (choice) => <Bar milliseconds={choice.milliseconds} slowest={slowest} />,
    },
    {
      id: "state",
      title: "State",
      width: 15,
      value: (choice) => choice.state,
      show: (choice) => <Badge tone={TONES[choice.state]}>{brief(choice.state || "unknown", 40)}</Badge>,
    },
    { id: "description", title: "Configuration", width: 40, value: (choice) => own(choice, shared).join(", ") },
    { id: "error", title: "Error", width: 16, value: (choice) => choice.error, optional: true },
  ];
}

function Bar({ milliseconds, slowest }: { milliseconds: number | null; slowest: number }): JSX.Element {
  if (milliseconds === null) return <span class="muted">no time</span>;
  return (
    <span class="bar-cell" title={`${decimal(milliseconds)} ms`}>
      <span class="stage-bar" aria-hidden="true">
        <span style={{ width: `${(100 * milliseconds) / slowest}%` }} />
      </span>
      <span>{duration(milliseconds / 1000)}</span>
    </span>
  );
}
