/** The trail as a picture: the fault at the top, below it what it comes from, the cause at the bottom. */

import type { JSX } from "preact";
import type { Trail, TrailBuffer, TrailStep } from "../contract";
import { address } from "../route";
import { brief, paragraph, plural } from "../text";

// Of a long trail, so many kernels are drawn at each end.
const MOST_AT_EACH_END = 15;
const PANES = "python,loop-body,kernel,wrapper";

export function TrailPicture({ trail }: { trail: Trail }): JSX.Element {
  const last = trail.steps.length - 1;
  const nodes = trail.steps.flatMap((step) => step.buffers.map((buffer) => buffer.node)).filter(Boolean);
  return (
    <section class="trail" aria-labelledby="trail-title">
      <h3 id="trail-title">From the fault back to its cause</h3>
      <ol>
        <li class="trail-row">
          <div class="trail-box trail-fault">
            <strong>Fault</strong> {paragraph(trail.fault, 400)}
          </div>
        </li>
        {!trail.reaches_fault && <li class="trail-row trail-gap">how it gets there is not known</li>}
        {trail.steps.map((step, place) => {
          if (place >= MOST_AT_EACH_END && place <= last - MOST_AT_EACH_END) {
            return place === MOST_AT_EACH_END && <Gap key={place} count={last - 2 * MOST_AT_EACH_END + 1} />;
          }
          return <StepRows key={place} trail={trail} step={step} isCause={place === last} />;
        })}
      </ol>
      {trail.graph !== null && nodes.length > 0 && (
        <p>
          <a class="button" href={address("explorer", { graph: trail.graph, op: nodes, panes: PANES })}>
            Show all of it in the linked panes
          </a>
        </p>
      )}
    </section>
  );
}

function Gap({ count }: { count: number }): JSX.Element {
  return <li class="trail-row trail-gap">{plural(count, "kernel")} in between</li>;
}

interface StepProperties {
  trail: Trail;
  step: TrailStep;
  isCause: boolean;
}

function StepRows({ trail, step, isCause }: StepProperties): JSX.Element {
  // The buffer that leads on down the trail is in the next row.
  const next = trail.steps[trail.steps.indexOf(step) + 1];
  const others = step.reads.filter((one) => !next?.buffers.some((buffer) => buffer.name === one.name));
  return (
    <>
      {step.buffers.map((buffer, place) => (
        <li key={place} class="trail-row">
          <div class={`trail-buffer ${isCause && place === step.buffers.length - 1 ? "trail-wrong" : ""}`}>
            <BufferText trail={trail} buffer={buffer} />
          </div>
        </li>
      ))}
      <li class="trail-row">
        <div class={`trail-box ${isCause ? "trail-cause" : ""}`}>
          <Link trail={trail} parameters={kernelParameters(step)} text={step.kernel} panes="kernel,wrapper" />
          {step.call > 0 && (
            <span class="muted">
              {" "}
              call {step.call} of {trail.calls}
            </span>
          )}
          {isCause && <Cause trail={trail} step={step} />}
        </div>
        {others.length > 0 && (
          <ul class="trail-reads" aria-label={`${isCause ? "It reads" : "It also reads"}`}>
            {others.slice(0, 12).map((buffer, place) => (
              <li key={place} class="trail-buffer">
                <BufferText trail={trail} buffer={buffer} />
              </li>
            ))}
            {others.length > 12 && <li class="muted">and {plural(others.length - 12, "other")}</li>}
          </ul>
        )}
      </li>
    </>
  );
}

function Cause({ trail, step }: { trail: Trail; step: TrailStep }): JSX.Element {
  return (
    <>
      <p class="prose">
        <strong>{step.buffers.length ? "Here it goes wrong:" : "Here it fails:"}</strong> {paragraph(trail.wrong, 1500)}
      </p>
      {trail.how && <p class="prose muted">{paragraph(trail.how, 400)}</p>}
    </>
  );
}

function BufferText({ trail, buffer }: { trail: Trail; buffer: TrailBuffer }): JSX.Element {
  const facts = [buffer.operation, buffer.source].filter(Boolean).map((text) => brief(text, 80));
  // Without a maker it may be an input, a constant, or what an unknown call makes.
  const maker = buffer.made_by ? brief(`made by ${buffer.made_by}`, 200) : undefined;
  return (
    <span title={maker}>
      {buffer.node ? (
        <Link trail={trail} parameters={{ op: [buffer.node] }} text={buffer.name} />
      ) : (
        <span class="mono">{brief(buffer.name, 60)}</span>
      )}
      {facts.length > 0 && <span class="muted"> {facts.join(", ")}</span>}
    </span>
  );
}

/** Two calls of a library have the same name: what a call makes tells them apart. */
function kernelParameters(step: TrailStep): Record<string, string | string[]> {
  const nodes = step.buffers.map((buffer) => buffer.node).filter(Boolean);
  return nodes.length > 0 ? { op: nodes } : { kernel: step.kernel };
}

/** To the linked panes, where the graph was recorded. */
function Link(properties: {
  trail: Trail;
  parameters: Record<string, string | string[]>;
  text: string;
  panes?: string;
}): JSX.Element {
  const { trail, parameters, text, panes = PANES } = properties;
  if (trail.graph === null) return <span class="mono">{brief(text, 120)}</span>;
  return (
    <a class="mono" href={address("explorer", { graph: trail.graph, ...parameters, panes })}>
      {brief(text, 120)}
    </a>
  );
}
