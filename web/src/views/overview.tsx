/** The first view: what was found, then the program, the stages and what is missing. */

import type { JSX } from "preact";
import { generatedKernels, graphsFromCache } from "../graphs";
import { Empty } from "../parts";
import { address } from "../route";
import type { Program as ProgramFacts, StageTime } from "../contract";
import type { Index } from "../schema";
import { brief, duration, paragraph, plural } from "../text";
import { CompileTable } from "./compile_table";
import { Costs } from "./costs";
import { Findings, gravestFirst } from "./findings";
import { VerdictSection } from "./verdict";

export function Overview({ index }: { index: Index }): JSX.Element {
  // What is wrong comes before what it costs, what might be better after it.
  const isWrong = index.verdict !== null || index.findings.some((finding) => finding.severity === "error");
  const isUrgent = isWrong || (index.graphs.length === 0 && index.findings.length > 0);
  return (
    <div class="overview">
      <h1>{brief(index.title, 120) || "Recording"}</h1>
      {index.verdict && <VerdictSection index={index} verdict={index.verdict} />}
      {!isUrgent && <Lead index={index} />}
      {isUrgent && <Findings findings={index.findings} />}
      <Costs index={index} />
      {!isUrgent && index.findings.length > 0 && <Findings findings={index.findings} />}
      <Program index={index} />
      <Stages stages={index.stages} />
      <div class="section">
        <h2>Compiles</h2>
        <CompileTable compiles={index.compiles} />
      </div>
      <Notes notes={index.notes} />
    </div>
  );
}

/** One sentence on what came of the program; what was found leads on to its cards. */
function Lead({ index }: { index: Index }): JSX.Element {
  const { compiles, findings } = index;
  const sentence = compiles.length ? `${plural(compiles.length, "compile")} ${compiled(index)}.` : "Nothing was compiled.";
  const [first, ...others] = gravestFirst(findings);
  return (
    <p class="prose lead">
      {sentence} {!first && "No rule has found anything."}
      {first && (
        <button type="button" class="link inline" onClick={() => document.getElementById("findings-title")?.scrollIntoView()}>
          {brief(first.title || first.rule, 200)}
        </button>
      )}
      {others.length > 0 && `, and ${plural(others.length, "further finding")}`}
      {first && "."}
    </p>
  );
}

function compiled(index: Index): string {
  const cached = graphsFromCache(index);
  const others = index.graphs.length - cached;
  return [
    (others > 0 || cached === 0) && `made ${plural(others, "graph")} with ${plural(generatedKernels(index), "kernel")}`,
    cached > 0 && `took ${plural(cached, "graph")} from a cache, whose kernels were not generated in this run and are not recorded`,
  ]
    .filter(Boolean)
    .join(" and ");
}

function programFacts(program: ProgramFacts): [string, string][] {
  return [
    ["Command", program.command],
    ["Ending", program.ending],
    ["Started", program.started],
    ["torch", program.torch],
    ["Python", program.python],
    ["Ran for", duration(program.seconds)],
  ];
}

function Program({ index }: { index: Index }): JSX.Element {
  const facts = [...programFacts(index.program), ["Recording", index.recording] as const].filter(([, value]) => value);
  return (
    <section aria-labelledby="program-title">
      <h2 id="program-title">Program</h2>
      <dl class="facts-list">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="mono" title={brief(value)}>
              {brief(value)}
            </dd>
          </div>
        ))}
      </dl>
      <ul class="tiles">
        <Tile view="explorer" value={plural(index.graphs.length, "graph")} />
        <Tile view="kernels" value={`${plural(generatedKernels(index), "kernel")}${graphsFromCache(index) > 0 ? " recorded" : ""}`} />
        <Tile view="ledger" value={`${plural(index.ledger.fused, "pair")} fused`} />
        <Tile view="ledger" value={`${plural(index.ledger.refused, "pair")} refused`} />
        <Tile view="autotune" value={plural(index.autotune.choices, "autotuning choice")} />
        <Tile view="timeline" value={plural(index.timeline.spans, "span")} />
      </ul>
    </section>
  );
}

function Tile({ view, value }: { view: string; value: string }): JSX.Element {
  const [number = "", ...unit] = value.split(" ");
  return (
    <li>
      <a href={address(view)}>
        <strong>{number}</strong> {unit.join(" ")}
      </a>
    </li>
  );
}

function Stages({ stages }: { stages: StageTime[] }): JSX.Element {
  const longest = Math.max(...stages.map((stage) => stage.seconds), 1e-9);
  return (
    <section aria-labelledby="stages-title">
      <h2 id="stages-title">Stages</h2>
      {stages.length === 0 && <Empty>No stage was recorded.</Empty>}
      <ol class="stages">
        {stages.map((stage, place) => (
          <li key={place}>
            <details>
              <summary title={brief(stage.explanation, 500)}>
                <span class="stage-name">{brief(stage.name, 60)}</span>
                <span class="stage-bar" aria-hidden="true">
                  <span style={{ width: `${(100 * (stage.seconds)) / longest}%` }} />
                </span>
                <span class="numeric">{duration(stage.seconds)}</span>
              </summary>
              <p class="prose">{paragraph(stage.explanation) || "No explanation available."}</p>
            </details>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Notes({ notes }: { notes: string[] }): JSX.Element {
  return (
    <section aria-labelledby="notes-title">
      <h2 id="notes-title">What is missing, and why</h2>
      {notes.length === 0 && <Empty>Nothing is missing.</Empty>}
      <ul class="notes">
        {notes.map((note, place) => (
          <li key={place}>{paragraph(note)}</li>
        ))}
      </ul>
    </section>
  );
}

