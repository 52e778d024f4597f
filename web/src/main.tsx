/** Begins as soon as the bundle is read: the index stands before it, the chunks after it. */
import "./style/colours.css";
import "./style/frame.css";
import "./style/views.css";
import "./style/run_time.css";

import { render } from "preact";
import { App } from "./app";
import { source } from "./data";

const root = document.getElementById("root");
if (root) {
  render(<App />, root);
  source.follow();
}
