/** The operations of a graph as a list, and the keys that walk over it. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { LinkedPanes } from "../chunks";
import type { LinkedOperation } from "../link";
import { Listbox } from "../listbox";
import { type Selection, colourOf } from "../linking";
import { Empty } from "../parts";
import { adjust } from "../route";
import { brief, plural } from "../text";

export function chooseOperation(operation: LinkedOperation): void {
  adjust({ op: [operation.name], pane: null, line: null, kernel: null, module: null });
}

interface Properties {
  chunk: LinkedPanes;
  selection: Selection;
  words: string;
}

export function OperationList({ chunk, selection, words }: Properties): JSX.Element {
  const found = useMemo(() => search(chunk.operations, words), [chunk, words]);
  const chosen = new Set(selection.operations);
  const places = new Set(found.flatMap((entry, place) => (chosen.has(entry.place) ? [place] : [])));
  return (
    <aside class="operations" aria-label="Operations">
      <input
        type="search"
        data-search
        aria-label="Find an operation"
        placeholder="Find an operation  /"
        value={words}
        onInput={(event) => adjust({ words: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key === "Enter" && found[0]) chooseOperation(found[0].operation);
        }}
      />
      {found.length > 0 ? (
        <Listbox
          label="Operations"
          items={found}
          height={40}
          chosen={places}
          active={[...places][0] ?? -1}
          onChoose={(entry) => chooseOperation(entry.operation)}
          show={(entry) => <OperationEntry operation={entry.operation} place={entry.place} />}
        />
      ) : (
        <Empty>{chunk.operations.length ? "No operation matches." : "No operation was recorded for this graph."}</Empty>
      )}
      <Summary chunk={chunk} selection={selection} />
    </aside>
  );
}

interface Entry {
  operation: LinkedOperation;
  place: number;
}

function search(operations: LinkedOperation[], words: string): Entry[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return operations
    .map((operation, place) => ({ operation, place }))
    .filter(({ operation }) => {
      const haystack = `${operation.name} ${operation.label} ${operation.module}`.toLowerCase();
      return wanted.every((word) => haystack.includes(word));
    });
}

function OperationEntry({ operation, place }: { operation: LinkedOperation; place: number }): JSX.Element {
  return (
    <>
      <span class={`swatch swatch-${colourOf(place)}`} aria-hidden="true" />
      <span class="two-lines" title={brief(`${operation.name} ${operation.label} ${operation.module}`)}>
        <span class="mono">{brief(operation.name, 80)}</span>
        <span class="muted mono">{brief(operation.label, 80)}</span>
      </span>
    </>
  );
}

function Summary({ chunk, selection }: { chunk: LinkedPanes; selection: Selection }): JSX.Element {
  const chosen = selection.operations.length;
  const leads = selection.operations.some((place) =>
    chunk.panes.some((pane) => chunk.operations[place]?.leads.get(pane.id)?.length),
  );
  const noCode = chunk.operations[selection.operations[0] ?? -1]?.no_code ?? "";
  return (
    <p class="summary" role="status">
      {chosen > 0 && `${plural(chosen, "operation")} selected.`}
      {chosen === 1 && noCode && ` No code: ${brief(noCode)}.`}
      {leads && " Dashed lines do not compute it: they are what it led to."}
      {chosen === 0 && selection.line > 0 && "No recorded operation belongs to this line."}
      {chosen === 0 && selection.line === 0 && `${plural(chunk.operations.length, "operation")}. Select one, or a line.`}
    </p>
  );
}

/** j and k walk over the operations from anywhere in the view that is no field to type in. */
export function useOperationKeys(chunk: LinkedPanes, selection: Selection): void {
  const current = useRef(-1);
  current.current = selection.operations[0] ?? -1;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      const step = { j: 1, k: -1 }[event.key];
      if (!step || chunk.operations.length === 0) return;
      const from = current.current;
      const next = from < 0 ? 0 : Math.min(Math.max(from + step, 0), chunk.operations.length - 1);
      // The next key may come before this choice has been drawn.
      current.current = next;
      chooseOperation(chunk.operations[next]!);
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [chunk]);
}

export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target;
  return target instanceof HTMLElement && target.matches("input, textarea, select");
}
