/** The strip of panes: they share the width, and each border between two can be moved. */

import { type ComponentChildren, type JSX, toChildArray } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { LinkedPanes, Pane } from "../chunks";
import { Code } from "../code";
import { type Lines, type Selection, firstMarked, kernelOf, markPane } from "../linking";
import { CopyButton, Empty } from "../parts";
import { adjust } from "../route";
import { paragraph } from "../text";

const NARROWEST = 200;
const STEP = 40;

export function PaneStrip({ children }: { children: ComponentChildren }): JSX.Element {
  const [widths, setWidths] = useState<Record<number, number>>({});
  const panes = toChildArray(children);
  const resize = (place: number, width: number): void =>
    setWidths((known) => ({ ...known, [place]: Math.max(width, NARROWEST) }));
  return (
    <div class="strip" role="region" aria-label="Panes" tabIndex={-1}>
      {panes.map((pane, place) => (
        <div key={place} class="slot" style={widths[place] ? { flex: `0 0 ${widths[place]}px` } : {}}>
          {pane}
          <Border onResize={(width) => resize(place, width)} />
        </div>
      ))}
    </div>
  );
}

/** The right border of a pane, moved by dragging or with the arrow keys. */
function Border({ onResize }: { onResize: (width: number) => void }): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const slot = (): DOMRect => element.current!.parentElement!.getBoundingClientRect();
  const onPointerMove = (event: PointerEvent): void => {
    if (element.current?.hasPointerCapture(event.pointerId)) onResize(event.clientX - slot().left);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (!step) return;
    event.preventDefault();
    onResize(slot().width + step);
  };
  return (
    <div
      ref={element}
      class="border"
      role="separator"
      aria-orientation="vertical"
      aria-label="Width of the pane"
      aria-valuenow={50}
      tabIndex={0}
      onPointerDown={(event) => element.current?.setPointerCapture(event.pointerId)}
      onPointerMove={onPointerMove}
      onKeyDown={onKeyDown}
    />
  );
}

export function PaneFrame(properties: {
  id: string;
  title: string;
  copy: string;
  controls?: ComponentChildren;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <section class="pane" aria-label={properties.title} data-pane={properties.id}>
      <header>
        <h2>{properties.title}</h2>
        {properties.controls}
        {properties.copy && <CopyButton text={properties.copy} label={`Copy all of ${properties.title}`} />}
        <button type="button" class="small" aria-label={`Hide ${properties.title}`} onClick={() => hide(properties.id)}>
          ×
        </button>
      </header>
      {properties.children}
    </section>
  );
}

function hide(id: string): void {
  const shown = [...document.querySelectorAll<HTMLElement>("[data-pane]")].map((pane) => pane.dataset.pane ?? "");
  const rest = shown.filter((one) => one !== id);
  adjust({ panes: rest.length ? rest.join(",") : "none" });
}

interface StageProperties {
  pane: Pane;
  chunk: LinkedPanes;
  lines: Lines;
  selection: Selection;
  revealed: string;
}

export function StagePane({ pane, chunk, lines, selection, revealed }: StageProperties): JSX.Element {
  const kernel = kernelOf(chunk, selection, selection.operations);
  const marks = useMemo(() => markPane(pane.id, { chunk, lines, selection, kernel }), [pane, chunk, lines, selection]);
  const inThisPane = selection.pane === pane.id;
  const wholeKernel = pane.id === "kernel" && selection.kernel && kernel ? kernel.first_line : null;
  return (
    <PaneFrame id={pane.id} title={pane.title} copy={pane.text}>
      {pane.text ? (
        <Code
          label={`${pane.title}, code`}
          language={pane.language}
          text={pane.text}
          labels={pane.labels}
          marks={marks}
          line={inThisPane ? selection.line : (wholeKernel ?? firstMarked(marks))}
          revealed={revealed}
          onLine={(line) => adjust({ pane: pane.id, line, op: null, kernel: null, module: null })}
        />
      ) : (
        <Empty>{pane.missing ? paragraph(pane.missing) : "Nothing was recorded at this stage."}</Empty>
      )}
    </PaneFrame>
  );
}
