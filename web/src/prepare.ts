/** Makes ready, while nobody waits, what the next view will most likely ask for. */

import { panesReader, readLedger, readPasses, readSchedule, readTimeline } from "./chunks";
import { readBuffersChunk } from "./contract";
import { type PartReader, source } from "./data";
import type { Index } from "./schema";

type Prepared = [name: string, read: PartReader<unknown>];

/** What views of the first graph and of the whole run show, the costliest first. */
function likely(index: Index): Prepared[] {
  const graph = index.graphs[0];
  const ofGraph: Prepared[] = graph
    ? [
        [graph.chunk, panesReader(graph.chunk)],
        [graph.passes, readPasses],
        [graph.schedule, readSchedule],
        [graph.buffers, readBuffersChunk],
      ]
    : [];
  return [
    ...ofGraph,
    ...(index.timeline.spans > 0 ? [[index.timeline.chunk, readTimeline] as Prepared] : []),
    ...(index.ledger.refused > 0 ? [[index.ledger.chunk, readLedger] as Prepared] : []),
  ];
}

/** One part at a time, each when the browser has nothing else to do; a live page changes too often. */
export async function prepareViews(): Promise<void> {
  if (source.index.live) return;
  for (const [name, read] of likely(source.index)) {
    await idle();
    await source.prepare(name, read);
  }
}

function idle(): Promise<void> {
  // Safari has no such callback.
  const whenIdle = window.requestIdleCallback ?? ((then: () => void) => window.setTimeout(then, 50));
  return new Promise((resolve) => whenIdle(() => resolve()));
}
