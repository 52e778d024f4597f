/** What rules found: findings of one kind are one card. */

import type { JSX } from "preact";
import type { Finding } from "../contract";
import { Empty, Severity, Sureness } from "../parts";
import { brief, paragraph, plural } from "../text";

const ORDER = { error: 0, warning: 1, note: 2 };
/** Further cards are folded away, so that the first screen has room for its picture. */
const MOST = 3;

export function Findings({ findings }: { findings: Finding[] }): JSX.Element {
  const cards = cardsOf(findings);
  return (
    <section aria-labelledby="findings-title">
      <h2 id="findings-title">Findings</h2>
      {cards.length === 0 && <Empty>No rule has found anything.</Empty>}
      <ol class="findings">
        {cards.slice(0, MOST).map((card) => (
          <Card key={card[0]!.rule + card[0]!.title} card={card} />
        ))}
      </ol>
      {cards.length > MOST && (
        <details class="further">
          <summary>{plural(cards.length - MOST, "further kind")} of findings</summary>
          <ol class="findings">
            {cards.slice(MOST).map((card) => (
              <Card key={card[0]!.rule + card[0]!.title} card={card} />
            ))}
          </ol>
        </details>
      )}
    </section>
  );
}

export function gravestFirst(findings: Finding[]): Finding[] {
  return [...findings].sort((left, right) => ORDER[left.severity] - ORDER[right.severity]);
}

/** The gravest first; findings of one rule together. */
function cardsOf(findings: Finding[]): Finding[][] {
  const cards = new Map<string, Finding[]>();
  for (const finding of gravestFirst(findings)) {
    const kind = `${finding.severity} ${finding.rule || finding.title}`;
    cards.set(kind, [...(cards.get(kind) ?? []), finding]);
  }
  return [...cards.values()];
}

function Card({ card }: { card: Finding[] }): JSX.Element {
  const [first, ...others] = card as [Finding, ...Finding[]];
  return (
    <li class={`finding finding-${first.severity}`}>
      <h3>
        <Severity level={first.severity} />
        <span>{brief(first.title || first.rule, 300)}</span>
        {others.length > 0 && <strong>×{card.length}</strong>}
        <Sureness confidence={first.confidence} />
      </h3>
      <Body finding={first} />
      {others.length > 0 && (
        <details>
          <summary>{plural(others.length, "more like this", "more like this")}</summary>
          {others.map((finding, place) => (
            <div key={place}>
              <h4>{brief(finding.title || finding.rule, 300)}</h4>
              <Body finding={finding} same={first.what_to_do} />
            </div>
          ))}
        </details>
      )}
      {first.rule && <p class="muted">inductoscope explain {brief(first.rule, 60)}</p>}
    </li>
  );
}

function Body({ finding, same = "" }: { finding: Finding; same?: string }): JSX.Element {
  return (
    <>
      {finding.place && <p class="mono place">{brief(finding.place)}</p>}
      {finding.text && <p class="prose">{paragraph(finding.text)}</p>}
      {finding.what_to_do && finding.what_to_do !== same && (
        <p class="prose advice">
          <strong>What to do:</strong> {paragraph(finding.what_to_do)}
        </p>
      )}
    </>
  );
}
