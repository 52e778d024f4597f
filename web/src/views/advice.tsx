/** What `inductoscope profile --advise` tried: each change with what it saves, predicted and measured. */

import type { JSX } from "preact";
import { type Advice, type AdvisedChange, readAdviceChunk } from "../contract";
import { useChunk } from "../data";
import { Badge, CopyButton, Loaded } from "../parts";
import type { Index } from "../schema";
import { brief, decimal, duration, paragraph, plural } from "../text";

const NONE = "No change was tried. 'inductoscope profile --advise SCRIPT' tries what may make it faster and keeps the result in its recording.";

export function AdviceView({ index }: { index: Index }): JSX.Element {
  const chunk = useChunk(index.advice?.chunk ?? "", readAdviceChunk);
  return (
    <div class="run-time">
      <h1>Advice</h1>
      <Loaded chunk={chunk} none={NONE}>
        {(advice) => <Shown advice={advice} />}
      </Loaded>
    </div>
  );
}

function Shown({ advice }: { advice: Advice }): JSX.Element {
  const untried = advice.changes.filter(isUntried);
  const tried = advice.changes.filter((change) => !isUntried(change));
  const helping = tried.filter((change) => change.helps);
  const others = tried.filter((change) => !change.helps);
  return (
    <>
      <p class="prose lead">
        {balance(helping.length, tried.length, untried.length)}{" "}
        {advice.ratio !== null && `Compiled calls take ${decimal(advice.ratio)} times as long as in eager.`}
      </p>
      <p class="muted">{paragraph(advice.how || advice.error)}</p>
      {helping.length > 0 && <Changes title="What helps, the most first" rows={helping} />}
      {advice.costs.length > 0 && (
        <section aria-labelledby="costs-title">
          <h2 id="costs-title">What costs time beside the kernels, measured</h2>
          <ul>
            {advice.costs.map((cost, place) => (
              <li key={place}>
                {duration(cost.seconds)} of a run: {paragraph(cost.what)}{" "}
                <span class="muted">{[brief(cost.source, 200), paragraph(cost.how)].filter(Boolean).join("; ")}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {others.length > 0 && <Changes title="Tried, and not shown to help" rows={others} />}
      {untried.length > 0 && <Changes title="Not tried, each for a reason" rows={untried} />}
    </>
  );
}

/** A change that comes with a warning is named, and was not tried. */
function isUntried(change: AdvisedChange): boolean {
  return change.warning !== "";
}

function balance(helping: number, tried: number, untried: number): string {
  return [
    tried === 0 && "No change was tried.",
    tried > 0 && helping === 0 && "Nothing that was tried is shown to save time.",
    helping > 0 && `Time is saved by ${helping} of ${plural(tried, "change that was", "changes that were")} tried.`,
    untried > 0 && `${plural(untried, "change was", "changes were")} not tried.`,
  ]
    .filter(Boolean)
    .join(" ");
}

function Changes({ title, rows }: { title: string; rows: AdvisedChange[] }): JSX.Element {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      <ul class="findings">
        {rows.map((row, place) => (
          <li key={place} class="finding">
            <h3>
              <span class="mono">{brief(row.change, 300)}</span>
              {row.helps && <Badge tone="good">saves {duration(row.saved)}</Badge>}
              {isUntried(row) && <Badge>not tried</Badge>}
            </h3>
            <p>{paragraph(row.why)}</p>
            {isUntried(row) ? <p>{paragraph(row.warning)}</p> : <Measured row={row} />}
            {row.source && <p class="muted mono">{brief(row.source, 300)}</p>}
            {row.helps && row.code && <CopyButton text={row.code} label={`Copy: ${brief(row.change, 80)}`} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Measured({ row }: { row: AdvisedChange }): JSX.Element {
  const how = row.prediction && `, ${row.prediction}`;
  const predicted = row.predicted === null ? `Not predicted${how}` : `Predicted: ${effect(row.predicted)}${how}`;
  return (
    <>
      <p>
        Measured: {row.saved === null ? "nothing" : `${effect(row.saved)} per run`}
        {row.ratio !== null && `; ${share(row.ratio)}`}. {paragraph(predicted)}.
      </p>
      <p class="muted">{paragraph(row.how)}</p>
    </>
  );
}

/** Less than nothing saved is a cost. */
function effect(saved: number): string {
  if (saved === 0) return "saves nothing";
  return saved > 0 ? `saves ${duration(saved)}` : `costs ${duration(-saved)} more`;
}

function share(ratio: number): string {
  return ratio > 1 ? `it takes ${decimal(ratio)} times as long` : `${decimal(ratio)} of the time is left`;
}
