/** Light or dark: what the system prefers, until the reader chooses. */

import { useState } from "preact/hooks";

export type Theme = "system" | "light" | "dark";

const KEY = "inductoscope-theme";
const ORDER: Theme[] = ["system", "light", "dark"];

// Pages opened from disk may not be allowed to keep anything.
function stored(): Theme {
  try {
    const value = window.localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

function keep(theme: Theme): void {
  try {
    window.localStorage.setItem(KEY, theme);
  } catch {
    // The choice then lasts as long as the page is open.
  }
}

const preference = window.matchMedia("(prefers-color-scheme: dark)");
let current = stored();

function apply(): void {
  const dark = current === "dark" || (current === "system" && preference.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

apply();
preference.addEventListener("change", apply);

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(current);
  const next = (): void => {
    current = ORDER[(ORDER.indexOf(current) + 1) % ORDER.length]!;
    keep(current);
    apply();
    setTheme(current);
  };
  return [theme, next];
}

/** Called whenever colours change, for what is drawn on a canvas. */
export function onColoursChanged(redraw: () => void): () => void {
  const observer = new MutationObserver(redraw);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  return () => observer.disconnect();
}
