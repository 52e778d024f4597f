/** Builds page.js and page.css into the Python package, with the licences of what is in them. */

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "..", "src", "inductoscope", "views", "page", "assets");
const SIZE_LIMIT = 1_200_000;

function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

/** One hash over everything that the assets are made from; a test in Python computes it too. */
function fingerprint() {
  const files = [...filesBelow(join(here, "src")), join(here, "package-lock.json"), join(here, "build.mjs")];
  const named = files.map((file) => [relative(here, file).split(sep).join("/"), file]);
  const hash = createHash("sha256");
  for (const [name, file] of named.sort(([left], [right]) => (left < right ? -1 : 1))) {
    hash.update(`${name}\0`).update(readFileSync(file)).update("\0");
  }
  return hash.digest("hex");
}

function bundledPackages(metafile) {
  const found = new Set();
  for (const output of Object.values(metafile.outputs)) {
    for (const [input, { bytesInOutput }] of Object.entries(output.inputs)) {
      const parts = input.split("node_modules/").pop().split("/");
      if (!input.includes("node_modules/") || bytesInOutput === 0) continue;
      found.add(parts[0].startsWith("@") ? `${parts[0]}/${parts[1]}` : parts[0]);
    }
  }
  return [...found].sort();
}

function licenceOf(name) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  const text = file ? readFileSync(join(folder, file), "utf8").trim() : `Licence: ${license}`;
  return { title: `${name} ${version} (${license})`, text };
}

/** Each text once, with its copyright line, under all libraries that come with it. */
function licencesText(names) {
  const titles = new Map();
  for (const { title, text } of names.map(licenceOf)) titles.set(text, [...(titles.get(text) ?? []), title]);
  const parts = [...titles].map(([text, of]) => `${of.join("\n")}\n${"=".repeat(72)}\n${text}\n`);
  return parts.join("\n\n");
}

/** The bundle is written into a script element: nothing in it may end that element. */
function checkText(name, text) {
  for (const forbidden of [/<\/script/i, /<\/style/i, /<!--/, /\beval\(/, /new Function\(/]) {
    if (forbidden.test(text)) throw new Error(`${name} holds ${forbidden}`);
  }
  if (text.length > SIZE_LIMIT) throw new Error(`${name} has ${text.length} characters`);
}

const result = await build({
  entryPoints: { page: join(here, "src", "main.tsx") },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { "process.env.NODE_ENV": '"production"' },
  outdir: assets,
  metafile: true,
  write: false,
});
mkdirSync(assets, { recursive: true });
for (const { path, text } of result.outputFiles) {
  checkText(path, text);
  writeFileSync(path, text);
  console.log(`${relative(join(here, ".."), path)}: ${text.length} characters`);
}
const libraries = bundledPackages(result.metafile);
writeFileSync(join(assets, "THIRD_PARTY_LICENSES.txt"), licencesText(libraries));
writeFileSync(join(assets, "built_from.txt"), `${fingerprint()}\n`);
console.log(`${libraries.length} libraries bundled`);
