/** Small pieces that every view is made of. */

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { Chunk } from "./data";
import { CONFIDENCES, type Confidence, type Finding } from "./contract";
import { brief } from "./text";

export function Empty({ children }: { children: ComponentChildren }): JSX.Element {
  return <p class="empty">{children}</p>;
}

export function Badge({ tone, children }: { tone?: string; children: ComponentChildren }): JSX.Element {
  return <span class={`badge ${tone ? `badge-${tone}` : ""}`}>{children}</span>;
}

export function Severity({ level }: { level: Finding["severity"] }): JSX.Element {
  return <Badge tone={level}>{level}</Badge>;
}

export function Sureness({ confidence }: { confidence: Confidence }): JSX.Element {
  return (
    <span class={`sureness sureness-${confidence}`} title={CONFIDENCES[confidence]}>
      {confidence}
    </span>
  );
}

export function CopyButton({ text, label, title = "Copy" }: { text: string; label: string; title?: string }): JSX.Element {
  const [done, setDone] = useState("");
  const copy = async (): Promise<void> => {
    setDone((await copyText(text)) ? "Copied" : "Not allowed to copy");
    window.setTimeout(() => setDone(""), 1500);
  };
  return (
    <button type="button" class="small" onClick={() => void copy()} aria-label={label}>
      {done || title}
      <span class="unseen" role="status">
        {done}
      </span>
    </button>
  );
}

/** Pages opened from disk may lack the clipboard; then an invisible text area does it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyThroughSelection(text);
  }
}

function copyThroughSelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

/** The content of a chunk, or in words why there is none. */
export function Loaded<Value>(properties: {
  chunk: Chunk<Value>;
  none: ComponentChildren;
  children: (value: Value) => JSX.Element;
}): JSX.Element {
  const { chunk } = properties;
  if (chunk.state === "ready") return properties.children(chunk.value);
  if (chunk.state === "failed") return <Empty>{brief(chunk.error)}</Empty>;
  if (chunk.state === "none") return <Empty>{properties.none}</Empty>;
  return (
    <p class="empty" role="status">
      Loading…
    </p>
  );
}

export interface TabChoice {
  value: string;
  label: string;
  title?: string;
}

/** A few choices of which one holds. */
export function Choices(properties: {
  label: string;
  value: string;
  choices: TabChoice[];
  onChoose: (value: string) => void;
}): JSX.Element {
  return (
    <div class="choices" role="group" aria-label={properties.label}>
      {properties.choices.map((choice) => (
        <button
          key={choice.value}
          type="button"
          aria-pressed={choice.value === properties.value}
          title={choice.title}
          onClick={() => properties.onChoose(choice.value)}
        >
          {choice.label}
        </button>
      ))}
    </div>
  );
}

export function Select(properties: {
  label: string;
  value: string;
  options: [value: string, label: string][];
  onChoose: (value: string) => void;
}): JSX.Element {
  return (
    <label class="field">
      <span>{properties.label}</span>
      <select
        aria-label={properties.label}
        value={properties.value}
        onChange={(event) => properties.onChoose(event.currentTarget.value)}
      >
        {properties.options.map(([value, label]) => (
          <option key={value} value={value}>
            {brief(label, 80)}
          </option>
        ))}
      </select>
    </label>
  );
}
