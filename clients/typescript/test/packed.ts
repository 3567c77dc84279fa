// Fails if the package contains unneeded files or lacks needed ones. client.mk runs it after the build, because it
// calls npm.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

interface Packed {
  readonly files: readonly { readonly path: string }[];
}

interface Manifest {
  readonly exports: Readonly<Record<string, string | Readonly<Record<string, string>>>>;
}

const answer: unknown = JSON.parse(
  execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { encoding: "utf8" }),
);
// Some versions of npm print a list, others an object by name.
const [packed] = Object.values(answer as Record<string, Packed>);
const paths = (packed?.files ?? []).map(({ path }) => path);
const unexpected = paths.filter((path) => !/^dist\/.+\.(js|d\.ts)$/.test(path));
assert.deepEqual(unexpected.sort(), ["LICENSE", "README.md", "package.json"]);

const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Manifest;
const named = Object.values(manifest.exports).flatMap((each) =>
  typeof each === "string" ? [each] : Object.values(each),
);
for (const file of [...named, "./dist/gen/service_config.js"]) {
  assert.ok(paths.includes(file.slice("./".length)) && existsSync(file), `${file} would be missing`);
}
console.log(`The package holds ${String(paths.length)} files.`);
