/** Begins as soon as the bundle is read: the index stands before it, the chunks after it. */
import "./style/colours.css";
import "./style/frame.css";
import "./style/views.css";
import "./style/run_time.css";

import { render } from "preact";
import { App } from "./app";
import { panesReader } from "./chunks";
import { source } from "./data";

/** For the browser's console, and for tests: the linked panes of a graph as views get them. */
Object.assign(window, { linkedPanes: (name: string) => source.read(name, panesReader(name)) });

const root = document.getElementById("root");
if (root) {
  render(<App />, root);
  source.follow();
}
