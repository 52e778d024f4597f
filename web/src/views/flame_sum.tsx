/** The flame graph of compile time: what is called lies below what calls it, as wide as it took. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Timeline } from "../contract";
import { type Frame, addUp } from "../flame_sum";
import { address } from "../route";
import type { Index } from "../schema";
import { brief, duration, plural } from "../text";

/** Narrower frames cannot be seen, nor pointed at. */
const LEAST = 0.0015;
const DEEPEST = 24;

export function FlameSum({ index, spans, colours }: { index: Index; spans: Timeline; colours: Map<string, number> }): JSX.Element {
  const roots = useMemo(() => addUp(spans, idsOf(index)), [index, spans]);
  const [path, setPath] = useState<Frame[]>([]);
  const shown = path.length ? [path[path.length - 1]!] : roots;
  return (
    <div class="flame-sum">
      <p class="breadcrumbs" role="status">
        <button type="button" class="small" onClick={() => setPath([])}>
          All
        </button>
        {path.map((one, place) => (
          <button key={place} type="button" class="small" onClick={() => setPath(path.slice(0, place + 1))}>
            {brief(one.name, 60)}
          </button>
        ))}{" "}
        Measured. Select a frame to enlarge it.
        {shown[0]?.graph != null && path.length > 0 && (
          <>
            {" "}
            <a href={address("explorer", { graph: shown[0].graph })}>Open its graph</a>
          </>
        )}
      </p>
      {shown.map((one, place) => (
        <ul key={place} class="frames" aria-label={`${brief(one.name, 60)}, added up`}>
          <Bar
            frame={one}
            share={1}
            depth={0}
            onChoose={(below) => setPath([...path.slice(0, -1), ...below])}
            colours={colours}
            above={[]}
            whole={one.seconds}
          />
        </ul>
      ))}
    </div>
  );
}

function idsOf(index: Index): (word: string) => boolean {
  const known = new Set([...index.compiles.map((one) => one.id), ...index.graphs.map((one) => one.key.split(" ")[0] ?? "")]);
  return (word) => known.has(word);
}

interface Properties {
  frame: Frame;
  share: number;
  depth: number;
  above: Frame[];
  whole: number;
  colours: Map<string, number>;
  onChoose: (path: Frame[]) => void;
}

/** A frame with what it called below it; what is left free is its own time. */
function Bar({ frame, depth, above, whole, colours, onChoose, share }: Properties): JSX.Element | null {
  if (share < LEAST || depth > DEEPEST) return null;
  const path = [...above, frame];
  const own = Math.max(frame.seconds - frame.inner.reduce((sum, one) => sum + one.seconds, 0), 0);
  const told = `${frame.name}: ${duration(frame.seconds)}, ${Math.round((1000 * frame.seconds) / Math.max(whole, 1e-12)) / 10} %, ${plural(frame.count, "time")}, ${duration(own)} in itself`;
  return (
    <li style={{ width: `${100 * share}%` }}>
      <button
        type="button"
        class={`frame stage-${colours.get(frame.stage) ?? 15}`}
        title={brief(told, 300)}
        aria-label={brief(told, 300)}
        onClick={() => onChoose(path)}
      >
        {brief(frame.name, 80)} <span class="numeric">{duration(frame.seconds)}</span>
      </button>
      {frame.inner.length > 0 && (
        <ul>
          {frame.inner.map((one, place) => (
            <Bar key={place} frame={one} share={frame.seconds > 0 ? Math.min(one.seconds / frame.seconds, 1) : 0} depth={depth + 1} above={path} whole={whole} colours={colours} onChoose={onChoose} />
          ))}
        </ul>
      )}
    </li>
  );
}
