// Bundles the plugin with its client into one file, since OpenClaw installs plugins without a registry.

import { existsSync, readFileSync, writeFileSync } from "node:fs";

import { build } from "esbuild";

// gRPC is a CommonJS package and calls `require`, which ES modules do not have.
const banner = 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';

const { metafile } = await build({
  entryPoints: ["build/src/index.js"],
  outfile: "dist/index.js",
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node22",
  external: ["openclaw", "openclaw/*"],
  legalComments: "eof",
  metafile: true,
  banner: { js: banner },
  logLevel: "warning",
});

// The licenses of the bundled packages require that their text is distributed with the code.
const packages = Object.keys(metafile.inputs).flatMap(
  (file) => /^.*node_modules\/(@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? [],
);
const licenses = [...new Set(packages)].map((folder) => {
  const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const text = existsSync(`${folder}/LICENSE`) ? readFileSync(`${folder}/LICENSE`, "utf8") : "";
  return `== ${name} ${version} (${license})\n\n${text}`;
});
writeFileSync("dist/licenses.txt", licenses.sort().join("\n"));
