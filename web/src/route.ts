/** The address of a view: `#/explorer?graph=3&op=relu`. The back button leads through it. */

import { useEffect, useState } from "preact/hooks";

export type Parameters = Record<string, string | number | string[] | null | undefined>;

export interface Route {
  view: string;
  get(name: string): string;
  all(name: string): string[];
  /** A position in a list, or null. */
  position(name: string): number | null;
}

export function address(view: string, parameters: Parameters = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (Array.isArray(value)) for (const one of value) query.append(name, one);
    else if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const written = query.toString();
  return `#/${view}${written ? `?${written}` : ""}`;
}

export function readRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parameters = new URLSearchParams(query);
  const get = (name: string): string => parameters.get(name) ?? "";
  return {
    view: path || "overview",
    get,
    all: (name) => parameters.getAll(name),
    position: (name) => (/^\d{1,9}$/.test(get(name)) ? Number(get(name)) : null),
  };
}

const CHANGED = "inductoscope-route";

export function go(view: string, parameters: Parameters = {}): void {
  window.location.hash = address(view, parameters);
}

/** What is typed: one step of the back button would be one letter. */
const TYPED = new Set(["q", "words"]);

/** Change parameters of the view that is shown. The back button retraces every step but typing. */
export function adjust(parameters: Parameters): void {
  const [path = "", query = ""] = window.location.hash.replace(/^#\/?/, "").split("?", 2);
  const present = new URLSearchParams(query);
  const merged: Parameters = {};
  for (const name of present.keys()) merged[name] = present.getAll(name);
  Object.assign(merged, parameters);
  const target = address(path || "overview", merged);
  if (target === window.location.hash) return;
  if (Object.keys(parameters).every((name) => TYPED.has(name))) window.history.replaceState(null, "", target);
  else window.history.pushState(null, "", target);
  window.dispatchEvent(new Event(CHANGED));
}

export function useRoute(): Route {
  const [hash, setHash] = useState(window.location.hash);
  useEffect(() => {
    const follow = (): void => setHash(window.location.hash);
    window.addEventListener("hashchange", follow);
    window.addEventListener(CHANGED, follow);
    return () => {
      window.removeEventListener("hashchange", follow);
      window.removeEventListener(CHANGED, follow);
    };
  }, []);
  return readRoute(hash);
}
