/** Lists that draw only the rows in sight. */

import {
  Virtualizer,
  type VirtualItem,
  elementScroll,
  observeElementOffset,
  observeElementRect,
} from "@tanstack/virtual-core";
import type { RefObject } from "preact";
import { useLayoutEffect, useReducer, useState } from "preact/hooks";

export interface Rows {
  items: VirtualItem[];
  total: number;
  reveal(index: number): void;
}

/** On paper nothing scrolls: all rows are drawn, unless there are more than anyone would print. */
const MOST_PRINTED = 5000;

function usePrinting(): boolean {
  const [printing, setPrinting] = useState(false);
  useLayoutEffect(() => {
    const begin = (): void => setPrinting(true);
    const end = (): void => setPrinting(false);
    window.addEventListener("beforeprint", begin);
    window.addEventListener("afterprint", end);
    return () => {
      window.removeEventListener("beforeprint", begin);
      window.removeEventListener("afterprint", end);
    };
  }, []);
  return printing;
}

export function useRows(scroller: RefObject<HTMLElement | null>, count: number, height: number): Rows {
  const [, redraw] = useReducer((drawn: number) => drawn + 1, 0);
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: usePrinting() ? MOST_PRINTED : 12,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => redraw(0),
  };
  const [virtualizer] = useState(() => new Virtualizer<HTMLElement, HTMLElement>(options));
  virtualizer.setOptions(options);
  useLayoutEffect(() => virtualizer._didMount(), []);
  useLayoutEffect(() => virtualizer._willUpdate());
  return {
    items: virtualizer.getVirtualItems(),
    total: virtualizer.getTotalSize(),
    reveal: (index) => virtualizer.scrollToIndex(index, { align: "auto" }),
  };
}
