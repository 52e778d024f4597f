/** Reading values of any type: a damaged page may hold anything anywhere. */

export type Raw = Record<string, unknown>;

/** Takes anything, and returns a value that is always of one type. */
export type Reader<Value> = (raw: unknown) => Value;

function record(value: unknown): Raw {
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
  return wholes(value).filter((line) => line > 0);
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

export function object<Value>(fields: { [Key in keyof Value]: Reader<Value[Key]> }): Reader<Value> {
  const keys = Object.keys(fields) as (keyof Value & string)[];
  return (value) => {
    const raw = record(value);
    const found = {} as Value;
    for (const key of keys) found[key] = fields[key](raw[key]);
    return found;
  };
}

/** Rows whose keys are written once, as columns. */
export function table<Row>(read: Reader<Row>): Reader<Row[]> {
  return (value) => {
    const { columns, rows } = record(value);
    const names = items(columns).map(text);
    return items(rows).map((row) => read(Object.fromEntries(items(row).map((one, place) => [names[place], one]))));
  };
}

/** Rows whose values are written once per column: a row holds their places. */
export function sharedTable<Row extends object>(read: Reader<Row>): Reader<Row[]> {
  return (value) => {
    const { columns, values, rows } = record(value);
    const empty = read({});
    const names = items(columns).map(text);
    // What rows share is read once, and is the same object in all of them.
    const shared = names.map((name, column) =>
      name in empty ? items(items(values)[column]).map((one) => (read({ [name]: one }) as Raw)[name]) : [],
    );
    // Plain loops: this is done for each of hundreds of thousands of values.
    return items(rows).map((raw) => {
      const row = { ...empty } as Raw;
      const places = items(raw);
      for (let column = 0; column < names.length; column += 1) {
        const place = places[column];
        const found = typeof place === "number" ? shared[column]![place] : undefined;
        if (found !== undefined) row[names[column]!] = found;
      }
      return row as Row;
    });
  };
}
