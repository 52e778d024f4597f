/** Reading values of any type: a damaged page may hold anything anywhere. */

export type Raw = Record<string, unknown>;

/** Takes anything, and returns a value that is always of one type. */
export type Reader<Value> = (raw: unknown) => Value;

export function record(value: unknown): Raw {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Raw) : {};
}

function items(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A text; numbers and booleans are written out, everything else is nothing. */
export function text(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return "";
}

export function texts(value: unknown): string[] {
  return items(value).map(text).filter((one) => one !== "");
}

export function flag(value: unknown): boolean {
  return value === true;
}

/** A flag that is set where nothing is said. */
export function flagUnlessFalse(value: unknown): boolean {
  return value !== false;
}

/** One of a few words; the last of them stands for all others. */
export function oneOf<Word extends string>(...words: [Word, ...Word[]]): Reader<Word> {
  return (value) => words.find((word) => word === value) ?? words[words.length - 1]!;
}

export function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function real(value: unknown): number {
  return number(value) ?? 0;
}

/** A whole number from 0 on, or null. */
export function whole(value: unknown): number | null {
  return Number.isInteger(value) && (value as number) >= 0 ? (value as number) : null;
}

export function wholes(value: unknown): number[] {
  return items(value).map(whole).filter((one): one is number => one !== null);
}

export function count(value: unknown): number {
  return whole(value) ?? 0;
}

/** Whole numbers from 1 on, as lines of a text are counted. */
export function lineNumbers(value: unknown): number[] {
  const found = items(value);
  // Hundreds of thousands in a large graph: hardly ever is one to be left out.
  return (found.every(isLine) ? found : found.filter(isLine)) as number[];
}

function isLine(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) > 0;
}

export function list<Value>(read: Reader<Value>): Reader<Value[]> {
  return (value) => items(value).map(read);
}

/** Values by name; names without a value are left out. */
export function byName<Value>(read: Reader<Value>): Reader<Map<string, Value>> {
  return (value) => {
    const given = Object.entries(record(value)).filter(([, one]) => one !== null && one !== "");
    return new Map(given.map(([name, one]): [string, Value] => [name, read(one)]));
  };
}

export function orNull<Value>(read: Reader<Value>): Reader<Value | null> {
  return (value) => (value ? read(value) : null);
}

/** For each key of an object, how its value is read. */
type Fields<Value> = { [Key in keyof Value]: Reader<Value[Key]> };

/** Reads a whole object; tables read single values of it. */
export interface ObjectReader<Value> extends Reader<Value> {
  fields: Fields<Value>;
}

export function object<Value>(fields: Fields<Value>): ObjectReader<Value> {
  const keys = Object.keys(fields) as (keyof Value & string)[];
  const read = (value: unknown): Value => {
    const raw = record(value);
    const found = {} as Value;
    for (const key of keys) found[key] = fields[key](raw[key]);
    return found;
  };
  return Object.assign(read, { fields });
}

/** Rows whose keys are written once, as columns. */
export function table<Row>({ fields }: ObjectReader<Row>): Reader<Row[]> {
  return (value) => {
    const { columns, rows } = record(value);
    const cells = items(rows).map(items);
    return lazyRows(fields, items(columns).map(text), cells.length, (column, read) => (row) => read(cells[row]![column]));
  };
}

/** Rows whose values are written once per column: a column has, for each row, the place of its value. */
export function sharedTable<Row>({ fields }: ObjectReader<Row>): Reader<Row[]> {
  return (value) => {
    const { columns, values, places } = record(value);
    const all = items(places).map(items);
    const longest = all.reduce((most, one) => Math.max(most, one.length), 0);
    return lazyRows(fields, items(columns).map(text), longest, (column, read) => {
      const written = items(items(values)[column]);
      // What rows share is read once, and is the same object in all of them.
      const known: ReturnType<typeof read>[] = [];
      const none = read(undefined);
      const here = all[column] ?? [];
      return (row) => {
        const place = here[row];
        if (typeof place !== "number" || !(place in written)) return none;
        if (!(place in known)) known[place] = read(written[place]);
        return known[place]!;
      };
    });
  };
}

/** Which row it is: a key that no column has. */
const ROW = Symbol("row");

type Cell = (row: number) => unknown;

/** Rows that read a value when a view asks for it: of a hundred thousand rows a few dozen are in sight. */
function lazyRows<Row>(
  fields: Fields<Row>,
  names: string[],
  count: number,
  columnOf: (column: number, read: Reader<Row[keyof Row]>) => Cell,
): Row[] {
  class LazyRow {
    readonly [ROW]: number;
    constructor(row: number) {
      this[ROW] = row;
    }
  }
  for (const key of Object.keys(fields) as (keyof Row & string)[]) {
    const column = names.indexOf(key);
    const none = fields[key](undefined);
    const cell = column < 0 ? (): unknown => none : columnOf(column, fields[key]);
    Object.defineProperty(LazyRow.prototype, key, {
      get(this: LazyRow) {
        return cell(this[ROW]);
      },
    });
  }
  return Array.from({ length: count }, (_, row) => new LazyRow(row) as Row);
}
