/** A list of any length of which one entry is chosen, by mouse or keyboard. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { useRows } from "./virtual";

interface Properties<Item> {
  label: string;
  items: Item[];
  height?: number;
  /** Positions of the entries that are chosen. */
  chosen: ReadonlySet<number>;
  /** The entry that the keyboard is at. */
  active: number;
  onChoose: (item: Item, place: number) => void;
  show: (item: Item, place: number) => ComponentChildren;
}

const STEPS: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

export function Listbox<Item>(properties: Properties<Item>): JSX.Element {
  const { items, active, chosen, onChoose, height = 28 } = properties;
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useRows(scroller, items.length, height);
  const id = useId();
  useEffect(() => {
    if (active >= 0 && active < items.length) rows.reveal(active);
  }, [active, items]);
  const choose = (place: number): void => {
    const bounded = Math.min(Math.max(place, 0), items.length - 1);
    if (items[bounded] !== undefined) onChoose(items[bounded], bounded);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const target = destination(event.key, active, items.length);
    if (target === null) return;
    event.preventDefault();
    choose(target);
  };
  return (
    <div
      class="listbox"
      role="listbox"
      aria-label={properties.label}
      aria-multiselectable={chosen.size > 1 ? "true" : undefined}
      aria-activedescendant={rows.items.some((item) => item.index === active) ? `${id}-${active}` : undefined}
      tabIndex={0}
      ref={scroller}
      onKeyDown={onKeyDown}
    >
      <div role="presentation" style={{ height: `${rows.total}px`, position: "relative" }}>
        {rows.items.map((row) => (
          <div
            key={row.index}
            id={`${id}-${row.index}`}
            role="option"
            class="option"
            aria-selected={chosen.has(row.index)}
            aria-posinset={row.index + 1}
            aria-setsize={items.length}
            style={{ top: `${row.start}px`, height: `${height}px` }}
            onClick={() => choose(row.index)}
          >
            {properties.show(items[row.index]!, row.index)}
          </div>
        ))}
      </div>
    </div>
  );
}

function destination(key: string, active: number, length: number): number | null {
  if (key === "Home") return 0;
  if (key === "End") return length - 1;
  const step = STEPS[key];
  if (step === undefined) return null;
  return active < 0 ? 0 : active + step;
}
