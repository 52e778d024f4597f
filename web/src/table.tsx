/** Tables that sort, filter and hold any number of rows. */

import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Empty } from "./parts";
import { amount, brief, plural } from "./text";
import { useRows } from "./virtual";

const ROW_HEIGHT = 30;

/** What the rows are sorted by; null for the order in which they came. */
type Sorting = { id: string; desc: boolean } | null;

export interface Column<Row> {
  id: string;
  title: string;
  /** What the column sorts by and, if it is a text, what the filter looks into. */
  value: (row: Row) => string | number | null;
  show?: (row: Row) => ComponentChildren;
  /** Share of the width. */
  width: number;
  numeric?: boolean;
  /** Left out where no row has a value for it. */
  optional?: boolean;
}

interface Properties<Row> {
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  filter?: string;
  onFilter?: (text: string) => void;
  sortedBy?: Sorting;
  onOpen?: (row: Row) => void;
  chosen?: (row: Row) => boolean;
  controls?: ComponentChildren;
  empty: string;
  minWidth?: number;
}

const COLLATOR = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export function DataTable<Row>(properties: Properties<Row>): JSX.Element {
  const { label, rows, filter = "" } = properties;
  const columns = useMemo(() => filledColumns(properties.columns, rows), [properties.columns, rows]);
  const [sorting, setSorting] = useState<Sorting>(properties.sortedBy ?? null);
  const found = useMemo(() => arrange(rows, columns, filter, sorting), [rows, columns, filter, sorting]);
  return (
    <section class="table" aria-label={label}>
      <div class="toolbar">
        {properties.controls}
        {properties.onFilter && (
          <label class="field grow">
            <span>Filter</span>
            <input
              type="search"
              data-search
              value={filter}
              placeholder="any word in a row"
              onInput={(event) => properties.onFilter?.(event.currentTarget.value)}
            />
          </label>
        )}
        <span class="count" role="status">
          {found.length === rows.length
            ? plural(rows.length, "row")
            : `${amount(found.length)} of ${plural(rows.length, "row")}`}
        </span>
      </div>
      {found.length === 0 ? (
        <Empty>{rows.length === 0 ? properties.empty : "No row matches the filter."}</Empty>
      ) : (
        <Body properties={{ ...properties, columns }} found={found} sorting={sorting} setSorting={setSorting} />
      )}
    </section>
  );
}

function filledColumns<Row>(columns: Column<Row>[], rows: Row[]): Column<Row>[] {
  const filled = (value: string | number | null): boolean => value !== null && value !== "";
  return columns.filter((column) => !column.optional || rows.some((row) => filled(column.value(row))));
}

function arrange<Row>(rows: Row[], columns: Column<Row>[], filter: string, sorting: Sorting): Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length ? rows.filter((row) => matches(row, columns, words)) : rows;
  const column = columns.find((one) => one.id === sorting?.id);
  return column ? sorted(found, column, sorting!.desc) : found;
}

/**
 * Rows without a value come last, whichever way is asked for. Of a hundred thousand rows most have
 * the value of another one: only the different values are compared.
 */
function sorted<Row>(rows: Row[], column: Column<Row>, desc: boolean): Row[] {
  const alike = new Map<string | number, Row[]>();
  const without: Row[] = [];
  for (const row of rows) {
    const value = column.value(row);
    const there = value === null ? without : alike.get(value);
    if (there) there.push(row);
    else alike.set(value!, [row]);
  }
  const sign = desc ? -1 : 1;
  const values = [...alike.keys()].sort((left, right) => sign * compare(left, right));
  return [...values.map((value) => alike.get(value)!), without].flat();
}

function compare(left: string | number, right: string | number): number {
  if (typeof left === "number" && typeof right === "number") return left - right;
  return COLLATOR.compare(String(left), String(right));
}

function matches<Row>(row: Row, columns: Column<Row>[], words: string[]): boolean {
  const haystack = columns.map((column) => column.value(row) ?? "").join("\n").toLowerCase();
  return words.every((word) => haystack.includes(word));
}

interface BodyProperties<Row> {
  properties: Properties<Row>;
  found: Row[];
  sorting: Sorting;
  setSorting: (sorting: Sorting) => void;
}

function Body<Row>({ properties, found, sorting, setSorting }: BodyProperties<Row>): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useRows(scroller, found.length, ROW_HEIGHT);
  const { columns, chosen } = properties;
  useRevealed(rows.reveal, chosen ? found.findIndex(chosen) : -1);
  const whole = columns.reduce((sum, column) => sum + column.width, 0);
  const onKeyDown = useRowKeys(scroller, rows.reveal, found.length);
  const before = rows.items[0]?.start ?? 0;
  const after = rows.total - (rows.items[rows.items.length - 1]?.end ?? 0);
  return (
    <div
      class="scroller"
      ref={scroller}
      tabIndex={0}
      role="region"
      aria-label={`${properties.label}, rows`}
      onKeyDown={onKeyDown}
    >
      <table aria-rowcount={found.length + 1} style={{ minWidth: `${properties.minWidth ?? 640}px` }}>
        <colgroup>
          {columns.map((column) => (
            <col key={column.id} style={{ width: `${(100 * column.width) / whole}%` }} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Heading key={column.id} column={column} sorting={sorting} setSorting={setSorting} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Space height={before} columns={columns.length} />
          {rows.items.map((item) => (
            <Line
              key={item.index}
              row={found[item.index]!}
              index={item.index}
              properties={properties}
              current={chosen?.(found[item.index]!) ?? false}
            />
          ))}
          <Space height={after} columns={columns.length} />
        </tbody>
      </table>
    </div>
  );
}

const STEPS: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

/** Arrow keys walk from row to row; Enter opens the row, as a click does. */
function useRowKeys(
  scroller: RefObject<HTMLDivElement | null>,
  reveal: (index: number) => void,
  count: number,
): (event: KeyboardEvent) => void {
  const line = (index: number): HTMLElement | null =>
    scroller.current?.querySelector<HTMLElement>(`tr[aria-rowindex="${index + 2}"]`) ?? null;
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = (event.target as HTMLElement).closest<HTMLElement>("tbody tr[aria-rowindex]");
    const current = row ? Number(row.getAttribute("aria-rowindex")) - 2 : -1;
    if (event.key === "Enter" && event.target === row) return row?.click();
    const next = destination(event.key, current, count);
    if (next === null) return;
    event.preventDefault();
    reveal(next);
    const focus = (left: number): void => {
      const found = line(next);
      if (found) found.focus({ preventScroll: true });
      // A row far away is drawn a frame after the table has been scrolled there.
      else if (left > 0) window.requestAnimationFrame(() => focus(left - 1));
    };
    focus(5);
  };
}

function destination(key: string, current: number, count: number): number | null {
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  const step = STEPS[key];
  if (step === undefined) return null;
  return Math.min(Math.max(current + step, 0), count - 1);
}

/** Bring the chosen row into sight once, when it becomes the chosen one. */
function useRevealed(reveal: (index: number) => void, index: number): void {
  useEffect(() => {
    if (index >= 0) reveal(index);
  }, [index]);
}

function Space({ height, columns }: { height: number; columns: number }): JSX.Element | null {
  if (height <= 0) return null;
  return (
    <tr aria-hidden="true" class="space">
      <td colSpan={columns} style={{ height: `${height}px` }} />
    </tr>
  );
}

interface HeadingProperties<Row> {
  column: Column<Row>;
  sorting: Sorting;
  setSorting: (sorting: Sorting) => void;
}

function Heading<Row>({ column, sorting, setSorting }: HeadingProperties<Row>): JSX.Element {
  const sorted = sorting?.id === column.id ? sorting : null;
  const order = sorted ? (sorted.desc ? "descending" : "ascending") : "none";
  // Of numbers the largest are wanted first, of names the beginning of the alphabet.
  const first = column.numeric ?? false;
  const next = (): Sorting => {
    if (!sorted) return { id: column.id, desc: first };
    return sorted.desc === first ? { id: column.id, desc: !first } : null;
  };
  return (
    <th scope="col" aria-sort={order} class={column.numeric ? "numeric" : ""}>
      <button type="button" onClick={() => setSorting(next())}>
        {column.title}
        <span aria-hidden="true" class="arrow">
          {sorted ? (sorted.desc ? "▾" : "▴") : ""}
        </span>
      </button>
    </th>
  );
}

interface LineProperties<Row> {
  row: Row;
  index: number;
  properties: Properties<Row>;
  current: boolean;
}

function Line<Row>({ row, index, properties, current }: LineProperties<Row>): JSX.Element {
  const { columns, onOpen } = properties;
  return (
    <tr
      aria-rowindex={index + 2}
      aria-current={current ? "true" : undefined}
      tabIndex={-1}
      class={onOpen ? "opens" : ""}
      onClick={() => onOpen?.(row)}
    >
      {columns.map((column, place) => (
        <Cell key={column.id} row={row} column={column} opens={place === 0 && Boolean(onOpen)} />
      ))}
    </tr>
  );
}

function Cell<Row>({ row, column, opens }: { row: Row; column: Column<Row>; opens: boolean }): JSX.Element {
  const plain = brief(String(column.value(row) ?? ""));
  const content = column.show ? column.show(row) : plain;
  return (
    <td class={column.numeric ? "numeric" : ""} title={column.numeric ? undefined : plain}>
      {opens ? (
        <button type="button" class="link">
          {content || "(no name)"}
        </button>
      ) : (
        content
      )}
    </td>
  );
}
