/** What a kernel was compiled to: one form at a time, linked to the lines of the kernel. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { FormText, LinkedPanes } from "../chunks";
import type { FormHead, PaneKernel } from "../contract";
import { Code } from "../code";
import type { Chunk } from "../data";
import { hasLanguage } from "../languages";
import { type Lines, NATIVE, type Selection, firstMarked, kernelOf, markForm } from "../linking";
import { Empty, Loaded, Select } from "../parts";
import { type Route, adjust } from "../route";
import { brief, bytes, decimal, duration, paragraph } from "../text";
import { PaneFrame } from "./panes";

export interface FormChoice {
  kernel: PaneKernel | null;
  form: FormHead | null;
}

export function formChoice(chunk: LinkedPanes, selection: Selection, route: Route): FormChoice {
  const kernel = kernelOf(chunk, selection, selection.operations);
  const forms = kernel?.forms ?? [];
  const named = forms.filter((form) => form.name === route.get("form"));
  const exact = named.find((form) => form.config === route.get("config"));
  const ran = (some: FormHead[]): FormHead | undefined => some.find((form) => form.ran) ?? some[0];
  return { kernel, form: exact ?? ran(named) ?? ran(forms) ?? null };
}

interface Properties {
  chunk: LinkedPanes;
  lines: Lines;
  selection: Selection;
  form: Chunk<FormText>;
  choice: FormChoice;
  revealed: string;
}

export function NativePane({ chunk, lines, selection, form, choice, revealed }: Properties): JSX.Element {
  const { kernel } = choice;
  const copy = form.state === "ready" ? form.value.text : "";
  return (
    <PaneFrame id={NATIVE} title="Native" copy={copy} controls={<Facts kernel={kernel} />}>
      {kernel ? (
        <>
          <Selectors chunk={chunk} choice={choice} />
          <Loaded chunk={form} none={whyNone(kernel)}>
            {(value) => (
              <Native
                form={value}
                // The name of a form says more about its language than the family that it belongs to.
                language={hasLanguage(choice.form?.name ?? "") ? choice.form!.name : value.language}
                kernel={kernel}
                lines={lines}
                selection={selection}
                revealed={revealed}
              />
            )}
          </Loaded>
        </>
      ) : (
        <Empty>No kernel was recorded for this graph.</Empty>
      )}
    </PaneFrame>
  );
}

function whyNone(kernel: PaneKernel): string {
  return paragraph(kernel.forms_missing) || "No native form of this kernel was recorded.";
}

function Facts({ kernel }: { kernel: PaneKernel | null }): JSX.Element {
  const facts = [...(kernel?.facts ?? [])].map(([name, value]) => `${name} ${inUnits(name, value)}`).join(", ");
  return (
    <span class="muted facts" title={brief(facts)}>
      {brief(facts, 120)}
    </span>
  );
}

function inUnits(name: string, value: number): string {
  if (name === "seconds") return duration(value);
  return name === "shared" ? bytes(value) : decimal(value);
}

function Selectors({ chunk, choice }: { chunk: LinkedPanes; choice: FormChoice }): JSX.Element {
  const { kernel, form } = choice;
  const forms = kernel?.forms ?? [];
  const names = [...new Set(forms.map((one) => one.name))];
  const configs = forms.filter((one) => one.name === form?.name);
  const keep = { kernel: kernel?.id, pane: null, line: null };
  return (
    <div class="selectors">
      <Select
        label="Kernel"
        value={kernel?.id ?? ""}
        options={chunk.kernels.map((one) => [one.id, one.id])}
        onChoose={(name) => adjust({ ...keep, op: null, kernel: name })}
      />
      {names.length > 0 && (
        <Select
          label="Form"
          value={form?.name ?? ""}
          options={names.map((name) => [name, name.toUpperCase()])}
          onChoose={(name) => adjust({ ...keep, form: name })}
        />
      )}
      {configs.some((one) => one.config) && (
        <Select
          label="Config"
          value={form?.config ?? ""}
          options={configs.map((one) => [one.config, configText(one)])}
          onChoose={(config) => adjust({ ...keep, form: form?.name, config })}
        />
      )}
    </div>
  );
}

/** The configuration with its time, and whether it is the one that runs. */
function configText(form: FormHead): string {
  const time = form.milliseconds === null ? "" : `${duration(form.milliseconds / 1000)}${form.ran ? ", ran" : ""}: `;
  return `${time}${form.config}`;
}

interface NativeProperties {
  form: FormText;
  language: string;
  kernel: PaneKernel;
  lines: Lines;
  selection: Selection;
  revealed: string;
}

function Native({ form, language, kernel, lines, selection, revealed }: NativeProperties): JSX.Element {
  const marks = useMemo(() => markForm(form, kernel, lines, selection), [form, kernel, lines, selection]);
  if (!form.text) return <Empty>The text of this form is empty.</Empty>;
  return (
    <Code
      label="Native, code"
      language={language}
      text={form.text}
      marks={marks}
      line={selection.pane === NATIVE ? selection.line : firstMarked(marks)}
      revealed={revealed}
      onLine={(line) => adjust({ pane: NATIVE, line, op: null, kernel: kernel.name })}
    />
  );
}
