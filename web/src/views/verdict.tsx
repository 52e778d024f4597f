/** What the doctor said: verdict, culprit, evidence, and what can be copied from it. */

import type { JSX } from "preact";
import { Badge, CopyButton, Sureness } from "../parts";
import type { Evidence, Reproducer, Verdict, Workaround, WrongValue } from "../contract";
import { address } from "../route";
import type { Index } from "../schema";
import { amount, brief, decimal, paragraph } from "../text";
import { type Place, PlacePanes, culpritPlace, placeAddress } from "./place";
import { TrailPicture } from "./trail";

/** The verdict in one line, above everything else. */
export function VerdictLine({ verdict }: { verdict: Verdict }): JSX.Element {
  return (
    <p class="verdict-line">
      <Badge tone={verdict.verdict === "clean" ? "good" : "error"}>{brief(verdict.verdict || "unknown", 40)}</Badge>
      {verdict.stage && verdict.stage !== "none" && <Badge>{brief(verdict.stage, 40)}</Badge>}
      <span class="prose lead">{paragraph(verdict.summary)}</span>
      <Sureness confidence={verdict.confidence} />
    </p>
  );
}

interface SectionProperties {
  index: Index;
  verdict: Verdict;
}

/** What the verdict is about, what can be copied, then how it is known. */
export function VerdictSection({ index, verdict }: SectionProperties): JSX.Element {
  const place = culpritPlace(index, verdict);
  return (
    <section class="verdict" aria-labelledby="verdict-title">
      <h2 id="verdict-title">The doctor's verdict</h2>
      <VerdictLine verdict={verdict} />
      {verdict.partial && <p class="prose">The examination is not complete. This is what was known by then.</p>}
      <CopyRow verdict={verdict} />
      {verdict.culprit.size > 0 && <Culprit culprit={[...verdict.culprit]} place={place} />}
      <WrongValues values={verdict.values} />
      {place && <PlacePanes index={index} place={place} />}
      <Cures verdict={verdict} />
      {verdict.trail && <TrailPicture trail={verdict.trail} />}
      <EvidenceList title="Evidence" items={verdict.evidence} />
      <EvidenceList title="Not checked" items={verdict.not_checked.map((what) => ({ what, where: "" }))} />
      <EvidenceList title="Differences from eager that are not failures" items={verdict.notes} />
    </section>
  );
}

/** The buttons that copy come right after the sentence. */
function CopyRow({ verdict }: { verdict: Verdict }): JSX.Element | null {
  const { workaround, repro, issue } = verdict;
  if (!workaround && !repro && !issue) return null;
  return (
    <p class="copy-row">
      {workaround && <CopyButton text={workaround.code || workaround.text} label="Copy workaround" title="Copy workaround" />}
      {repro && <CopyButton text={repro.text || repro.path} label="Copy reproducer" title="Copy reproducer" />}
      {issue && <CopyButton text={issue} label="Copy report" title="Copy report" />}
    </p>
  );
}

function Cures({ verdict }: { verdict: Verdict }): JSX.Element {
  return (
    <>
      {verdict.workaround && <WorkaroundBlock workaround={verdict.workaround} />}
      {verdict.repro && <ReproducerBlock reproducer={verdict.repro} />}
      {verdict.issue && <CopyBlock title="Issue text" text={verdict.issue} closed />}
    </>
  );
}

/** What was computed beside what should have been. */
function WrongValues({ values }: { values: WrongValue[] }): JSX.Element | null {
  if (values.length === 0) return null;
  const exact = values.some((value) => value.float64);
  return (
    <table class="values">
      <caption>One element of each wrong result: the furthest off, or the first that is not finite</caption>
      <thead>
        <tr>
          <th scope="col">Result</th>
          <th scope="col">Expected, in eager</th>
          {exact && <th scope="col">In float64</th>}
          <th scope="col">Actual, compiled</th>
          <th scope="col">Elements that are wrong</th>
        </tr>
      </thead>
      <tbody>
        {values.map((value, place) => (
          <tr key={place}>
            <th scope="row" class="mono">
              {brief(value.where, 60)}
              {value.index.length > 0 && `[${value.index.join(", ")}]`}
            </th>
            <td class="mono">{brief(value.expected, 60)}</td>
            {exact && <td class="mono">{brief(value.float64, 60)}</td>}
            <td class="mono">{brief(value.actual, 60)}</td>
            <td>
              {amount(value.wrong)} of {amount(value.elements)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

// Parts of a culprit that stand somewhere in the linked panes.
const SHOWN_IN_PANES = new Set(["op", "kernel", "source", "function"]);

function Culprit({ culprit, place }: { culprit: [string, string][]; place: Place | null }): JSX.Element {
  return (
    <dl class="facts-list">
      {culprit.map(([name, value]) => (
        <div key={name}>
          <dt>{brief(name, 40)}</dt>
          <dd class="mono">
            <CulpritValue name={name} value={value} place={place} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function CulpritValue({ name, value, place }: { name: string; value: string; place: Place | null }): JSX.Element {
  if (name === "pass") return <a href={address("passes", { graph: place?.graph })}>{brief(value)}</a>;
  if (!place || !SHOWN_IN_PANES.has(name)) return <>{brief(value)}</>;
  return <a href={placeAddress(place)}>{brief(value)}</a>;
}

function EvidenceList({ title, items }: { title: string; items: Evidence[] }): JSX.Element | null {
  if (items.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="notes">
        {items.map((one, place) => (
          <li key={place}>
            {paragraph(one.what)} {one.where && <span class="muted mono">{brief(one.where)}</span>}
          </li>
        ))}
      </ul>
    </>
  );
}

function WorkaroundBlock({ workaround }: { workaround: Workaround }): JSX.Element {
  const facts = [workaround.verified ? "tried: the program is correct with it" : "tried: it did not help"];
  if (workaround.slowdown !== null) facts.push(`${decimal(workaround.slowdown)} times the run time`);
  if (workaround.code) facts.unshift(paragraph(workaround.text));
  return <CopyBlock title="Workaround" note={facts.join("; ")} text={workaround.code || workaround.text} />;
}

function ReproducerBlock({ reproducer }: { reproducer: Reproducer }): JSX.Element {
  const facts = [reproducer.verified ? "verified" : "not verified"];
  if (reproducer.failed !== null && reproducer.of !== null) {
    facts.push(`failed ${reproducer.failed} of ${reproducer.of} runs`);
  }
  if (reproducer.nodes !== null) facts.push(`${reproducer.nodes} nodes`);
  if (reproducer.path) facts.push(brief(reproducer.path, 120));
  return <CopyBlock title="Reproducer" note={facts.join(", ")} text={reproducer.text || reproducer.path} />;
}

interface BlockProperties {
  title: string;
  note?: string;
  text: string;
  closed?: boolean;
}

export function CopyBlock({ title, note, text, closed }: BlockProperties): JSX.Element {
  return (
    <details class="copy-block" open={!closed}>
      <summary>
        <strong>{title}</strong> {note && <span class="muted">{note}</span>}
      </summary>
      <div class="copy-body">
        <CopyButton text={text} label={`Copy: ${title}`} />
        <pre tabIndex={0} aria-label={title}>
          {paragraph(text, 50_000)}
        </pre>
      </div>
    </details>
  );
}
