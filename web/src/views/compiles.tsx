/** Guards, recompiles, graph breaks, caches and errors of every compile. */

import type { ComponentChildren, JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { type Compile, type Failure, readGuardsChunk } from "../contract";
import { Code } from "../code";
import { useChunk } from "../data";
import { Badge, Choices, CopyButton, Empty, Loaded } from "../parts";
import { type Route, address, adjust } from "../route";
import type { Index } from "../schema";
import { amount, brief, duration, paragraph, plural } from "../text";
import { CompileTable, outcomeTone } from "./compile_table";
import { PackageParts } from "./package";
import { CopyBlock } from "./verdict";

const KINDS: Record<string, { label: string; holds: (compile: Compile) => boolean }> = {
  all: { label: "All", holds: () => true },
  breaks: { label: "Graph breaks", holds: (compile) => compile.breaks.length > 0 },
  recompiles: { label: "Recompiles", holds: (compile) => compile.recompile !== null },
  caches: { label: "Caches", holds: (compile) => compile.caches.length > 0 },
  errors: { label: "Errors", holds: (compile) => compile.errors.length > 0 },
};

export function Compiles({ index, route }: { index: Index; route: Route }): JSX.Element {
  const kind = KINDS[route.get("kind")] ? route.get("kind") : "all";
  const rows = useMemo(() => {
    const all = index.compiles.map((compile, place) => ({ compile, place }));
    return all.filter(({ compile }) => KINDS[kind]!.holds(compile));
  }, [index, kind]);
  const asked = route.position("compile") ?? -1;
  const place = index.compiles[asked] ? asked : (rows[0]?.place ?? -1);
  const compile = index.compiles[place];
  const choices = Object.entries(KINDS).map(([value, one]) => {
    const found = index.compiles.filter(one.holds).length;
    return { value, label: `${one.label} ${found}` };
  });
  return (
    <div class="split-rows">
      <h1>Guards, recompiles, graph breaks, caches</h1>
      <CompileTable
        compiles={index.compiles}
        rows={rows}
        chosen={place}
        controls={
          <Choices label="Compiles that are shown" value={kind} choices={choices} onChoose={(value) => adjust({ kind: value })} />
        }
      />
      {compile && <Details key={place} index={index} compile={compile} />}
    </div>
  );
}

function Details({ index, compile }: { index: Index; compile: Compile }): JSX.Element {
  return (
    <section class="details" aria-label={`Compile ${brief(compile.id, 20)}`}>
      <h2>
        <span class="mono">{brief(compile.id, 40)}</span> {brief(compile.function, 80)}{" "}
        <Badge tone={outcomeTone(compile.outcome)}>{brief(compile.outcome || "unknown", 40)}</Badge>
        {compile.flow && " "}
        {compile.flow && <Badge>{brief(compile.flow, 40)}</Badge>}
      </h2>
      <p class="mono muted">
        {brief([compile.place, compile.process].filter(Boolean).join(", "))}
        {compile.seconds !== null && `, ${duration(compile.seconds)}`}
      </p>
      {compile.reason && <p class="prose">{paragraph(compile.reason)}</p>}
      <GraphLinks index={index} compile={compile} />
      <Errors errors={compile.errors} />
      {compile.package && <PackageParts compile={compile} />}
      <Part title="Recompile" none={compile.recompile ? "" : "Not a recompile."}>
        {compile.recompile && <Recompile compile={compile} />}
      </Part>
      <Part title="Graph breaks" none={compile.breaks.length ? "" : "None recorded."}>
        <ul class="notes">
          {compile.breaks.map((one, place) => (
            <li key={place}>
              {one.source && <span class="mono">{brief(one.source)} </span>}
              <span class="prose">{paragraph(one.reason)}</span>
            </li>
          ))}
        </ul>
      </Part>
      <Part title="Caches" none={compile.caches.length ? "" : "No cache lookup was recorded."}>
        <Caches compile={compile} />
      </Part>
      <Part title="Decompositions" none={compile.decompositions.size ? "" : "None recorded."}>
        <Decompositions compile={compile} />
      </Part>
      {!compile.package && <Guards compile={compile} />}
    </section>
  );
}

function Part(properties: { title: string; none: string; children: ComponentChildren }): JSX.Element {
  return (
    <>
      <h3>{properties.title}</h3>
      {properties.none ? <p class="muted">{properties.none}</p> : properties.children}
    </>
  );
}

function GraphLinks({ index, compile }: { index: Index; compile: Compile }): JSX.Element | null {
  const graphs = compile.graphs.flatMap((place) => index.graphs[place] ?? []);
  if (graphs.length === 0) return null;
  return (
    <p>
      Graphs:{" "}
      {graphs.map((graph) => (
        <a key={graph.index} class="pill mono" href={address("explorer", { graph: graph.index })}>
          {brief(graph.key, 60)}
        </a>
      ))}
    </p>
  );
}

function Recompile({ compile }: { compile: Compile }): JSX.Element {
  return (
    <>
      <ul class="notes">
        {compile.recompile?.reasons.map((reason, place) => (
          <li key={place} class="mono">
            {paragraph(reason)}
          </li>
        ))}
      </ul>
      {compile.recompile?.limit && <p class="prose">{paragraph(compile.recompile.limit)}</p>}
    </>
  );
}

function Errors({ errors }: { errors: Failure[] }): JSX.Element | null {
  if (errors.length === 0) return null;
  return (
    <>
      <h3>Errors</h3>
      {errors.map((error, place) => (
        <div key={place} class="finding finding-error">
          <h4>
            <Badge tone="error">{brief(error.stage || "error", 40)}</Badge> {brief(error.type, 120)}
          </h4>
          <p class="prose">{paragraph(error.message)}</p>
          {error.source && <p class="mono place">{brief(error.source)}</p>}
          {error.detail && <CopyBlock title="Detail" text={error.detail} closed />}
          {error.traceback && <CopyBlock title="Traceback" text={error.traceback} closed />}
        </div>
      ))}
    </>
  );
}

/** Operations that were written out as others; each leads to what it is searched by. */
function Decompositions({ compile }: { compile: Compile }): JSX.Element {
  const sorted = [...compile.decompositions].sort((left, right) => right[1] - left[1]);
  return (
    <p class="decompositions">
      {sorted.map(([name, times]) => (
        <a key={name} class="pill mono" href={address("search", { q: name.split(".").slice(0, 2).join(".") })}>
          {brief(name, 80)} ×{amount(times)}
        </a>
      ))}
    </p>
  );
}

function Caches({ compile }: { compile: Compile }): JSX.Element {
  return (
    <table class="plain">
      <thead>
        <tr>
          <th scope="col">Cache</th>
          <th scope="col">Outcome</th>
          <th scope="col">Key</th>
          <th scope="col">Reason</th>
        </tr>
      </thead>
      <tbody>
        {compile.caches.map((one, place) => (
          <tr key={place}>
            <td>{brief(one.cache, 60)}</td>
            <td>
              <Badge tone={/hit/i.test(one.outcome) ? "good" : "note"}>{brief(one.outcome, 40)}</Badge>
            </td>
            <td class="mono">{brief(one.key, 60)}</td>
            <td>{paragraph(one.reason, 2000)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The text of the guards is inflated only when asked for. */
function Guards({ compile }: { compile: Compile }): JSX.Element {
  const [open, setOpen] = useState(false);
  const chunk = useChunk(open ? compile.guards : "", readGuardsChunk);
  const known = compile.guard_count ? plural(compile.guard_count, "guard") : "";
  if (!compile.guards) {
    return (
      <Part title="Guards" none={known ? `${known}; their text was not recorded.` : "No guards were recorded."}>
        {null}
      </Part>
    );
  }
  return (
    <>
      <h3>Guards</h3>
      <details class="guards" onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>{known || "Show them"}</summary>
        {open && (
          <Loaded chunk={chunk} none="">
            {({ text }) => (
              <div class="guard-text">
                <CopyButton text={text} label="Copy the guards" />
                {text ? <Code label="Guards" language="python" text={text} /> : <Empty>The text is empty.</Empty>}
              </div>
            )}
          </Loaded>
        )}
      </details>
    </>
  );
}
