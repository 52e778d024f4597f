/** What compiling and running cost: a sentence and a picture each, every part of them a link. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type KernelRow, type LedgerCause, readModulesChunk } from "../contract";
import { useChunk } from "../data";
import { type ModuleNode, buildTree, isMeasured } from "../modules";
import { Loaded } from "../parts";
import { address } from "../route";
import type { Index } from "../schema";
import { brief, bytes, duration, plural } from "../text";
import { causeName, causeText } from "./ledger";
import { ModelTree } from "./model_tree";
import { RunTreemap } from "./treemap";

const MOST_CAUSES = 3;
/** The share of a bar from which on a name fits into it; all have it as their title. */
const LEGIBLE = 0.1;

export function Costs({ index }: { index: Index }): JSX.Element | null {
  // While a program runs, this would be made anew with every change.
  const chunk = useChunk(index.finished ? index.modules.chunk : "", readModulesChunk);
  const roots = useMemo(() => (chunk.state === "ready" ? buildTree(chunk.value) : []), [chunk.state === "ready" && chunk.value]);
  if (index.graphs.length === 0) return null;
  return (
    <>
      <CompileCost index={index} />
      <section aria-labelledby="run-cost">
        <Loaded chunk={chunk} none={<RunSentence index={index} roots={[]} />}>
          {() => <RunCost index={index} roots={roots} />}
        </Loaded>
      </section>
      {chunk.state === "ready" && <ModelTree roots={roots} />}
    </>
  );
}

// --- compiling -----------------------------------------------------------------------------------

function CompileCost({ index }: { index: Index }): JSX.Element {
  const total = index.stages.reduce((sum, stage) => sum + stage.seconds, 0);
  const stages = [...index.stages].filter((stage) => stage.seconds > 0).sort((left, right) => right.seconds - left.seconds);
  const first = stages[0];
  return (
    <section aria-labelledby="compile-cost">
      <h2 id="compile-cost">
        Compiling: {duration(total)}, measured
        {first && `; ${percent(first.seconds, total)} in ${brief(first.name, 40)}`}
      </h2>
      <div class="stacked" role="group" aria-label="Seconds of each stage">
        {stages.map((stage, place) => (
          <a
            key={stage.name}
            class={`stage-${place % 16}`}
            style={{ width: `${(100 * stage.seconds) / Math.max(total, 1e-12)}%` }}
            href={address("timeline", { as: "sum" })}
            title={brief(`${stage.name}: ${duration(stage.seconds)}, ${percent(stage.seconds, total)}`, 120)}
            aria-label={brief(`${stage.name}: ${duration(stage.seconds)}, ${percent(stage.seconds, total)}`, 120)}
          >
            {stage.seconds >= LEGIBLE * total && `${brief(stage.name, 30)} ${duration(stage.seconds)}`}
          </a>
        ))}
      </div>
      <CompilerSentence rows={index.kernels} />
    </section>
  );
}

/** Compilers run beside each other, so their seconds may be more than those of the stage. */
function CompilerSentence({ rows }: { rows: KernelRow[] }): JSX.Element | null {
  const compiled = rows.filter((row) => row.made === "compiled" && row.seconds !== null);
  const slowest = [...compiled].sort((left, right) => (right.seconds ?? 0) - (left.seconds ?? 0))[0];
  if (!slowest) return null;
  const seconds = compiled.reduce((sum, row) => sum + (row.seconds ?? 0), 0);
  return (
    <p class="prose">
      C++ and Triton compilers ran for {duration(seconds)}, side by side, on{" "}
      <a href={address("kernels")}>{plural(compiled.length, "kernel")}</a>; the slowest took {duration(slowest.seconds)}:{" "}
      <KernelLink row={slowest} />
    </p>
  );
}

// --- running -------------------------------------------------------------------------------------

function RunCost({ index, roots }: { index: Index; roots: ModuleNode[] }): JSX.Element {
  return (
    <>
      <RunSentence index={index} roots={roots} />
      <div class="run-picture">
        <RunTreemap roots={roots} />
        <RefusedFusions index={index} />
      </div>
    </>
  );
}

function RunSentence({ index, roots }: { index: Index; roots: ModuleNode[] }): JSX.Element {
  const seconds = roots.reduce((sum, root) => sum + root.cost.seconds, 0);
  const moved = index.kernels.reduce((sum, row) => sum + (row.bytes ?? 0), 0);
  const measured = isMeasured(roots);
  return (
    <>
      <h2 id="run-cost">
        Running: {measured ? `${duration(seconds)} in kernels, measured` : moved > 0 ? `at least ${bytes(moved)} moved, modelled` : "not modelled"}
      </h2>
      <p class="prose">
        {measured && (
          <>
            {brief(index.profile?.headline ?? "", 400)} <a href={address("runtime")}>Kernels against the machine's limits</a>
          </>
        )}
        {!measured && moved > 0 && "Every graph called once, with the sizes that it was compiled for. 'inductoscope profile' measures the time."}
        {!measured && moved <= 0 && "The sizes of the buffers were not recorded."}
      </p>
    </>
  );
}

/** Pairs that are no single kernel, by cause, with what to do about each. */
function RefusedFusions({ index }: { index: Index }): JSX.Element | null {
  const causes = index.ledger.causes.filter((cause) => cause.outcome === "refused");
  if (causes.length === 0) return null;
  return (
    <div>
      <h3>{plural(index.ledger.refused, "fusion")} refused, by cause; bytes are modelled</h3>
      <ul class="refused">
        {causes.slice(0, MOST_CAUSES).map((cause) => (
          <CauseItem key={cause.condition} cause={cause} />
        ))}
      </ul>
      {causes.length > MOST_CAUSES && (
        <p>
          <a href={address("ledger", { outcome: "refused" })}>{plural(causes.length - MOST_CAUSES, "further cause")}</a>
        </p>
      )}
    </div>
  );
}

function CauseItem({ cause }: { cause: LedgerCause }): JSX.Element {
  return (
    <li>
      <a href={address("ledger", { outcome: cause.outcome, cause: causeName(cause) })}>{causeText(cause)}</a>
      <p class="muted">{brief(cause.reason, 200)}</p>
      {cause.what_to_change && <p>{brief(cause.what_to_change, 200)}</p>}
    </li>
  );
}

function KernelLink({ row }: { row: KernelRow }): JSX.Element {
  return (
    <a class="mono" href={address("explorer", { graph: row.graph, kernel: row.id || row.name })}>
      {brief(row.name, 60)}
    </a>
  );
}

function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "";
}
