/** Keys, in a dialog that `?` opens. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

const KEYS: [string, string][] = [
  ["?", "this help"],
  ["/", "search in this view"],
  ["Ctrl K", "search the whole recording"],
  ["Ctrl F", "in a code pane: find in all of its text"],
  ["Escape", "clear the selection, close the dialog"],
  ["j, k", "linked panes: next and previous operation"],
  ["↑, ↓", "in a list or table: previous and next entry; in a code pane: previous and next line"],
  ["←, →", "on a pane border: resize; in the timeline: move"],
  ["+, −, 0", "timeline and scheduler graph: zoom in, zoom out, show all"],
  ["arrows", "scheduler graph: follow edges, go to neighbours"],
];

export function Help({ open, onClose }: { open: boolean; onClose: () => void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open && dialog.current?.open) dialog.current.close();
  }, [open]);
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClose={onClose}>
      <h2 id="help-title">Keys</h2>
      <dl class="keys">
        {KEYS.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <p class="muted">
        In the linked panes, lines of the same colour belong to the same operation. Select a line in any pane to
        highlight its counterparts in the others.
      </p>
      <button type="button" onClick={onClose}>
        Close
      </button>
    </dialog>
  );
}
