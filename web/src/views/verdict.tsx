/** What the doctor said: verdict, culprit, evidence, and what can be copied from it. */

import type { JSX } from "preact";
import { Badge, CopyButton, Sureness } from "../parts";
import type { Evidence, Reproducer, Verdict, Workaround } from "../contract";
import { brief, decimal, paragraph } from "../text";
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

export function VerdictSection({ verdict }: { verdict: Verdict }): JSX.Element {
  return (
    <section class="verdict" aria-labelledby="verdict-title">
      <h2 id="verdict-title">The doctor's verdict</h2>
      <VerdictLine verdict={verdict} />
      {verdict.partial && <p class="prose">The examination is not complete. This is what was known by then.</p>}
      {verdict.culprit.size > 0 && <Culprit culprit={[...verdict.culprit]} />}
      {verdict.trail && <TrailPicture trail={verdict.trail} />}
      <EvidenceList title="Evidence" items={verdict.evidence} />
      <EvidenceList title="Not checked" items={verdict.not_checked.map((what) => ({ what, where: "" }))} />
      <EvidenceList title="Differences from eager that are not failures" items={verdict.notes} />
      {verdict.workaround && <WorkaroundBlock workaround={verdict.workaround} />}
      {verdict.repro && <ReproducerBlock reproducer={verdict.repro} />}
      {verdict.issue && <CopyBlock title="Issue text" text={verdict.issue} closed />}
    </section>
  );
}

function Culprit({ culprit }: { culprit: [string, string][] }): JSX.Element {
  return (
    <dl class="facts-list">
      {culprit.map(([name, value]) => (
        <div key={name}>
          <dt>{brief(name, 40)}</dt>
          <dd class="mono">{brief(value)}</dd>
        </div>
      ))}
    </dl>
  );
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
