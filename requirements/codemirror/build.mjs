// Join CodeMirror and the yaml package into one ES module of frontend/static/vendor, with its licences and its digest.
//
// Run after a change of package.json:  cd requirements/codemirror && npm ci --ignore-scripts && node build.mjs
// The same locked packages always give the same bytes; `node build.mjs --check` compares them with the file that is there.

import { createHash } from "node:crypto";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { nodeResolve } from "@rollup/plugin-node-resolve";
import { rollup } from "rollup";
import { minify } from "terser";

const here = import.meta.dirname;
const vendor = join(here, "..", "..", "frontend", "static", "vendor");
const lockPath = join(vendor, "vendor.lock.json");
const read = (path) => JSON.parse(readFileSync(path, "utf8"));

const bundle = await rollup({
  input: join(here, "entry.js"),
  plugins: [nodeResolve({ browser: true, exportConditions: ["browser", "import"] })],
  onwarn: (warning) => {
    if (warning.code !== "CIRCULAR_DEPENDENCY") throw new Error(warning.message);
  },
});
const { output } = await bundle.generate({ format: "es", inlineDynamicImports: true });
const { code } = await minify(output[0].code, { module: true, ecma: 2020, format: { comments: false } });

const names = [
  ...new Set(
    Object.keys(output[0].modules)
      .map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1])
      .filter(Boolean),
  ),
].sort();
const packages = Object.fromEntries(names.map((name) => [name, read(join(here, "node_modules", name, "package.json")).version]));
const licences = names.map((name) => {
  const folder = join(here, "node_modules", name);
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} comes without a licence`);
  return `${name} ${packages[name]}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});

const version = packages["@codemirror/view"];
const name = `codemirror-${version}.esm.min.js`;
const locked = read(join(here, "package-lock.json")).packages;
const entry = {
  package: "@codemirror/view",
  version,
  path: "requirements/codemirror/entry.js, joined by requirements/codemirror/build.mjs",
  packages: Object.fromEntries(
    names.map((each) => [each, { version: packages[each], integrity: locked[`node_modules/${each}`].integrity }]),
  ),
  sha256: createHash("sha256").update(code).digest("hex"),
};

if (process.argv.includes("--check")) {
  if (read(lockPath)[name]?.sha256 !== entry.sha256) throw new Error(`${name} is not what these packages give`);
} else {
  for (const old of readdirSync(vendor).filter((file) => /^codemirror-.*\.(?:js|d\.ts)$/.test(file))) rmSync(join(vendor, old));
  writeFileSync(join(vendor, name), code);
  writeFileSync(join(vendor, name.replace(/js$/, "d.ts")), 'export * from "../../../requirements/typescript/vendor";\n');
  writeFileSync(join(vendor, "LICENSE-codemirror.txt"), licences.join(`\n${"-".repeat(80)}\n\n`));
  const others = Object.entries(read(lockPath)).filter(([file]) => !file.startsWith("codemirror-"));
  writeFileSync(lockPath, `${JSON.stringify(Object.fromEntries([[name, entry], ...others]), null, 2)}\n`);
}
process.stdout.write(`${name}: ${code.length} bytes, ${names.length} packages\n`);
