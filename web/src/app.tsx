/** The frame around every view: title, search, navigation, banner. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useSource } from "./data";
import { generatedKernels } from "./graphs";
import { Help } from "./help";
import { type Route, address, useRoute } from "./route";
import type { Index } from "./schema";
import { GlobalSearch } from "./search";
import { amount, brief } from "./text";
import { useTheme } from "./theme";
import { AdviceView } from "./views/advice";
import { Autotune } from "./views/autotune";
import { Buffers } from "./views/buffers";
import { CompileTime } from "./views/compile_time";
import { Compiles } from "./views/compiles";
import { Explorer } from "./views/explorer";
import { Kernels } from "./views/kernels";
import { Ledger } from "./views/ledger";
import { MemoryView } from "./views/memory";
import { isTyping } from "./views/operations";
import { Overview } from "./views/overview";
import { Passes } from "./views/passes";
import { RunTime } from "./views/run_time";
import { Scheduler } from "./views/scheduler";
import { SearchResults } from "./views/search";
import { Timeline } from "./views/timeline";

interface ViewProperties {
  index: Index;
  route: Route;
}

interface View {
  name: string;
  title: string;
  show: (properties: ViewProperties) => JSX.Element;
  count?: (index: Index) => number;
}

const VIEWS: View[] = [
  { name: "overview", title: "Overview", show: Overview, count: (index) => index.findings.length },
  { name: "timeline", title: "Timeline", show: Timeline, count: (index) => index.timeline.spans },
  { name: "runtime", title: "Run time", show: RunTime, count: (index) => index.profile?.kernels ?? 0 },
  { name: "memory", title: "Memory", show: MemoryView, count: (index) => index.memory?.count ?? 0 },
  { name: "advice", title: "Advice", show: AdviceView, count: (index) => index.advice?.count ?? 0 },
  { name: "compiletime", title: "Compile time", show: CompileTime, count: (index) => index.costs?.count ?? 0 },
  { name: "explorer", title: "Linked panes", show: Explorer, count: (index) => index.graphs.length },
  { name: "passes", title: "Passes", show: Passes },
  { name: "scheduler", title: "Scheduler graph", show: Scheduler },
  {
    name: "ledger",
    title: "Fusion ledger",
    show: Ledger,
    count: ({ ledger }) => ledger.fused + ledger.refused + ledger.never,
  },
  { name: "buffers", title: "Buffers", show: Buffers },
  { name: "autotune", title: "Autotuning", show: Autotune, count: (index) => index.autotune.searches },
  { name: "compiles", title: "Guards and breaks", show: Compiles, count: (index) => index.compiles.length },
  { name: "kernels", title: "Kernels", show: Kernels, count: generatedKernels },
  { name: "search", title: "Search", show: SearchResults },
];

export function App(): JSX.Element {
  const source = useSource();
  const route = useRoute();
  const [help, setHelp] = useState(false);
  const view = VIEWS.find((one) => one.name === route.view) ?? VIEWS[0]!;
  const { index } = source;
  useEffect(() => globalKeys(() => setHelp(true)), []);
  useEffect(() => {
    document.title = `${brief(index.title || "recording", 60)}: ${view.title}`;
  }, [index.title, view]);
  const Shown = view.show;
  return (
    <>
      <a class="skip" href="#main" onClick={focusMain}>
        Skip to the content
      </a>
      <Header index={index} onHelp={() => setHelp(true)} />
      <Navigation index={index} current={view.name} />
      <main id="main" tabIndex={-1}>
        <Banners index={index} trouble={source.trouble} />
        {hasContents(index) && (
          <div class={`view view-${view.name}`} key={view.name}>
            <Shown index={index} route={route} />
          </div>
        )}
      </main>
      <Help open={help} onClose={() => setHelp(false)} />
    </>
  );
}

/** The server's first page holds no index at all. */
function hasContents(index: Index): boolean {
  return !index.live || index.title !== "";
}

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Header({ index, onHelp }: { index: Index; onHelp: () => void }): JSX.Element {
  const [theme, nextTheme] = useTheme();
  return (
    <header class="top">
      <a class="brand" href={address("overview")}>
        <strong>inductoscope</strong> <span class="muted">{brief(index.title, 50)}</span>
      </a>
      <GlobalSearch index={index} />
      <button type="button" onClick={nextTheme} aria-label={`Colours: ${theme}. Change`}>
        Colours: {theme}
      </button>
      <button type="button" onClick={onHelp} aria-label="Keys and help">
        ?
      </button>
    </header>
  );
}

function Navigation({ index, current }: { index: Index; current: string }): JSX.Element {
  return (
    <nav aria-label="Views">
      <ul>
        {VIEWS.map((view) => {
          const count = view.count?.(index);
          return (
            <li key={view.name}>
              <a href={address(view.name)} aria-current={view.name === current ? "page" : undefined}>
                <span>{view.title}</span>
                {Boolean(count) && <span class="number">{amount(count ?? 0)}</span>}
              </a>
            </li>
          );
        })}
      </ul>
      <p class="muted version">{index.inductoscope && `inductoscope ${brief(index.inductoscope, 20)}`}</p>
    </nav>
  );
}

function Banners({ index, trouble }: { index: Index; trouble: string }): JSX.Element {
  return (
    <>
      {index.target && (
        <p class="banner" role="note">
          {brief(index.target.note, 400)}
        </p>
      )}
      {index.live && !index.finished && !trouble && (
        <p class="banner quiet" role="status">
          {hasContents(index) ? "The program is still running; this page updates by itself." : "Reading the recording."}
        </p>
      )}
      {trouble && (
        <p class="banner alarm" role="alert">
          {trouble}
        </p>
      )}
    </>
  );
}

function globalKeys(openHelp: () => void): () => void {
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) focusOn("#global-search", event);
    else if (isTyping(event)) leaveField(event);
    else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "?") openHelp();
    else if (event.key === "/") focusOn("main [data-search], #global-search", event);
  };
  window.addEventListener("keydown", onKeyDown);
  return () => window.removeEventListener("keydown", onKeyDown);
}

function focusOn(selector: string, event: Event): void {
  const places = [...document.querySelectorAll<HTMLInputElement>(selector)];
  const field = places.find((place) => place.matches("main *")) ?? places[0];
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

function leaveField(event: KeyboardEvent): void {
  if (event.key === "Escape") (event.target as HTMLElement).blur();
}
