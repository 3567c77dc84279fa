// Bundles the plugin with its client into one file, since OpenClaw installs plugins without a registry.

import { build } from "esbuild";

// gRPC is a CommonJS package and calls `require`, which ES modules do not have.
const banner = 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';

await build({
  entryPoints: ["build/src/index.js"],
  outfile: "dist/index.js",
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node22",
  external: ["openclaw", "openclaw/*"],
  legalComments: "linked",
  banner: { js: banner },
  logLevel: "warning",
});
