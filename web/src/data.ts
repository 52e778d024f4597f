/** Where the data comes from: elements of this file, or the server of a live page. */

import { useEffect, useState } from "preact/hooks";
import { type Index, readIndex } from "./schema";

const POLL_MILLISECONDS = 2000;
const FAILURES_BEFORE_GIVING_UP = 5;
/** The server's answer once the recording was deleted or moved; its text says so. */
const GONE = 410;

type Listener = () => void;

interface Entry {
  generation: number;
  value?: unknown;
  error?: string;
  pending?: Promise<void>;
}

/** Another part of the page, as it is. */
export type Part = (name: string) => Promise<unknown>;
/** Reads a part of the page, some with the help of others. */
export type PartReader<Value> = (raw: unknown, part: Part) => Value | Promise<Value>;

export type Chunk<Value> =
  | { state: "none" }
  | { state: "loading" }
  | { state: "failed"; error: string }
  | { state: "ready"; value: Value };

/** The index, and the chunks that have been looked at. */
class Source {
  index: Index;
  /** Why the index could not be read, or why a live page no longer follows. */
  trouble = "";
  /** How often something has been announced. */
  news = 0;
  private indexText = "";
  private generation = 0;
  private failures = 0;
  private readonly entries = new Map<string, Entry>();
  private readonly listeners = new Set<Listener>();

  constructor() {
    this.indexText = document.getElementById("index")?.textContent ?? "";
    this.index = this.parseIndex(this.indexText);
  }

  private parseIndex(json: string): Index {
    try {
      return readIndex(JSON.parse(json));
    } catch {
      this.trouble = "The index of this page is damaged: it is not JSON. Make the page again.";
      return readIndex({});
    }
  }

  subscribe(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private announce(): void {
    this.news += 1;
    for (const listener of [...this.listeners]) listener();
  }

  /** A live page asks for a new index until the run has finished or the server is gone. */
  follow(): void {
    if (!this.index.live || this.index.finished) return;
    // The server's first page holds no index at all.
    window.setTimeout(() => void this.refresh(), this.index.title ? POLL_MILLISECONDS : 0);
  }

  private async refresh(): Promise<void> {
    try {
      const answer = await fetch("index.json", { cache: "no-store" });
      if (answer.status === GONE) return this.lose(await answer.text());
      if (!answer.ok) throw new Error(String(answer.status));
      this.accept(await answer.text());
    } catch {
      this.failures += 1;
    }
    if (this.failures < FAILURES_BEFORE_GIVING_UP) return this.follow();
    this.lose("The server has stopped.");
  }

  private lose(why: string): void {
    this.trouble = this.index.title ? `${why} This is the last state that the server sent.` : why;
    this.announce();
  }

  private accept(json: string): void {
    this.failures = 0;
    if (json === this.indexText) return;
    this.indexText = json;
    this.index = this.parseIndex(json);
    this.generation += 1;
    this.announce();
  }

  /** What is known of a chunk right now; asks for it if nobody has. */
  chunk<Value>(name: string, read: PartReader<Value>): Chunk<Value> {
    if (!name) return { state: "none" };
    const entry = this.entries.get(name);
    if (!entry || entry.generation !== this.generation) this.request(name, read);
    const known = this.entries.get(name);
    if (known?.value !== undefined) return { state: "ready", value: known.value as Value };
    return known?.error ? { state: "failed", error: known.error } : { state: "loading" };
  }

  private request<Value>(name: string, read: PartReader<Value>): void {
    const entry: Entry = { ...this.entries.get(name), generation: this.generation };
    this.entries.set(name, entry);
    entry.pending = this.load(name)
      .then(async (json) => {
        entry.value = await read(JSON.parse(json), this.part);
        entry.error = undefined;
      })
      .catch((error: unknown) => {
        entry.error = error instanceof Missing ? error.message : `The part ${name} of this page is damaged.`;
      })
      .then(() => this.announce());
  }

  /** A chunk for one look at it: it is not kept, so that a search over all of them needs no memory. */
  async read<Value>(name: string, read: PartReader<Value>): Promise<Value> {
    const known = this.entries.get(name);
    if (known?.value !== undefined && known.generation === this.generation) return known.value as Value;
    return read(JSON.parse(await this.load(name)), this.part);
  }

  private readonly part: Part = async (name) => JSON.parse(await this.load(name));

  private load(name: string): Promise<string> {
    return this.index.live ? loadFromServer(name) : loadFromPage(name);
  }
}

class Missing extends Error {}

async function loadFromServer(name: string): Promise<string> {
  const answer = await fetch(`chunk/${encodeURIComponent(name)}`, { cache: "no-store" });
  if (answer.status === GONE) throw new Missing(await answer.text());
  if (!answer.ok) throw new Missing(`The server has no part called ${name}.`);
  return answer.text();
}

async function loadFromPage(name: string): Promise<string> {
  const element = await chunkElement(name);
  if (!element) throw new Missing(`This page has no part called ${name}: the file may have been cut off.`);
  return inflate(element.textContent ?? "");
}

/** The bundle runs before the parser has reached the chunks. */
async function chunkElement(name: string): Promise<HTMLElement | null> {
  const found = document.getElementById(`chunk-${name}`);
  if (document.readyState !== "loading") return found;
  // While the parser is at work an element may be there in part.
  await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  return document.getElementById(`chunk-${name}`);
}

/** Newer browsers have a way without a text in between. */
const FROM_BASE64 = (Uint8Array as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;

function decodeBase64(base64: string): Uint8Array<ArrayBuffer> {
  if (FROM_BASE64) return FROM_BASE64.call(Uint8Array, base64);
  const binary = atob(base64.trim());
  const packed = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place += 1) packed[place] = binary.charCodeAt(place);
  return packed;
}

async function inflate(base64: string): Promise<string> {
  const packed = decodeBase64(base64);
  // Straight into the stream: a Blob would be read back through another process of the browser.
  const stream = new DecompressionStream("gzip");
  const writer = stream.writable.getWriter();
  const written = writer.write(packed).then(() => writer.close());
  const [text] = await Promise.all([new Response(stream.readable).text(), written]);
  return text;
}

export const source = new Source();

/** Draw again whenever new data has come. */
export function useSource(): Source {
  const [, redraw] = useState(0);
  const drawn = source.news;
  useEffect(() => {
    const again = (): void => redraw((times) => times + 1);
    // Something may have come after this was drawn and before anyone listened.
    if (source.news !== drawn) again();
    return source.subscribe(again);
  }, []);
  return source;
}

export function useChunk<Value>(name: string, read: PartReader<Value>): Chunk<Value> {
  return useSource().chunk(name, read);
}
