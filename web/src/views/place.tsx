/** Where a verdict points to: the program's line, the loop body and the kernel, side by side. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type LinkedPanes, panesReader } from "../chunks";
import { Code } from "../code";
import type { Verdict } from "../contract";
import { useChunk } from "../data";
import { type Selection, firstMarked, indexLines, kernelById, markPane, operationsOfKernel } from "../linking";
import { Loaded } from "../parts";
import { address, go } from "../route";
import type { Index } from "../schema";

const PANES = ["python", "loop-body", "kernel"];

export interface Place {
  graph: number;
  /** Names of operations. */
  operations: string[];
  kernel: string;
}

/** The place of the culprit; null if the recording does not say which graph it is in. */
export function culpritPlace(index: Index, verdict: Verdict): Place | null {
  const kernel = verdict.culprit.get("kernel") ?? "";
  const rows = index.kernels.filter((row) => kernel && (row.id === kernel || row.name === kernel));
  const graphs = [...new Set(rows.map((row) => row.graph))];
  const cause = verdict.trail?.steps.at(-1);
  const graph = verdict.trail?.graph ?? (graphs.length === 1 ? (graphs[0] ?? null) : null);
  if (graph === null || !index.graphs[graph]) return null;
  const operations = (cause?.buffers ?? []).map((buffer) => buffer.node).filter(Boolean);
  // Two library calls may share the name; then only what they make says which is meant.
  const own = rows.filter((row) => row.graph === graph);
  return operations.length > 0 || own.length === 1 ? { graph, operations, kernel: own[0]?.id ?? "" } : null;
}

export function placeAddress(place: Place): string {
  const chosen = place.operations.length ? { op: place.operations } : { kernel: place.kernel };
  return address("explorer", { graph: place.graph, ...chosen, panes: PANES.join(",") });
}

export function PlacePanes({ index, place }: { index: Index; place: Place }): JSX.Element {
  const name = index.graphs[place.graph]?.chunk ?? "";
  const chunk = useChunk(name, panesReader(name));
  return (
    <div class="place">
      <p>
        <a class="button" href={placeAddress(place)}>
          Open in the linked panes
        </a>
      </p>
      <Loaded chunk={chunk} none="The stages of this graph were not recorded.">
        {(value) => <ThreePanes chunk={value} place={place} />}
      </Loaded>
    </div>
  );
}

function ThreePanes({ chunk, place }: { chunk: LinkedPanes; place: Place }): JSX.Element {
  const lines = useMemo(() => indexLines(chunk), [chunk]);
  const kernel = kernelById(chunk, place.kernel);
  const selection = useMemo(() => select(chunk, place), [chunk, place]);
  return (
    <div class="place-panes">
      {chunk.panes
        .filter((pane) => PANES.includes(pane.id) && pane.text)
        .map((pane) => {
          const marks = markPane(pane.id, { chunk, lines, selection, kernel });
          return (
            <section key={pane.id} class="pane" aria-label={pane.title}>
              <header>
                <h3>{pane.title}</h3>
              </header>
              <Code
                label={`${pane.title}, code`}
                language={pane.language}
                text={pane.text}
                labels={pane.labels}
                marks={marks}
                line={firstMarked(marks)}
                onLine={(line) =>
                  go("explorer", { graph: place.graph, pane: pane.id, line, panes: PANES.join(",") })
                }
              />
            </section>
          );
        })}
    </div>
  );
}

function select(chunk: LinkedPanes, place: Place): Selection {
  const names = new Set(place.operations);
  const named = chunk.operations.flatMap((operation, at) => (names.has(operation.name) ? [at] : []));
  const kernel = kernelById(chunk, place.kernel);
  const operations = named.length || !kernel ? named : operationsOfKernel(chunk, kernel);
  return { operations, pane: "", line: 0, kernel: "" };
}
