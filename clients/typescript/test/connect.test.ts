import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { connect } from "@memoryd/client";

import { served } from "./daemon.js";

const tcp = { address: "127.0.0.1:7627", token: "t" };

test("what TLS needs and cannot be used is refused by name", (context) => {
  const folder = mkdtempSync(join(tmpdir(), "memoryd-"));
  context.after(() => {
    rmSync(folder, { recursive: true });
  });
  const nonsense = join(folder, "nonsense.pem");
  writeFileSync(nonsense, "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
  const refused = (tls: object, message: RegExp): void => {
    assert.throws(() => connect({ ...tcp, tls }), { name: "ConnectError", message });
  };
  refused({ caFile: "/absent/ca.pem" }, /cannot read the CA file \/absent\/ca\.pem: ENOENT/);
  refused({ certFile: nonsense }, /needed together/);
  refused({ certFile: nonsense, keyFile: nonsense }, /cannot use .*nonsense\.pem/);
});

test("a token that no header can carry is refused, and the message does not show it", () => {
  assert.throws(
    () => connect({ ...tcp, token: "geheim\u0007" }),
    (error: Error) => {
      assert.equal(error.name, "ConnectError");
      return !error.message.includes("geheim");
    },
  );
});

test("a timeout that is none is refused", () => {
  assert.throws(() => connect({ ...tcp, timeoutMs: NaN }), RangeError);
});

test("closing gives the file descriptors back", { skip: process.platform !== "linux" }, async (context) => {
  const client = await served(context, {
    Status: (_, answer) => {
      answer(null, {});
    },
  });
  const open = (): number => readdirSync("/proc/self/fd").length;
  const before = open();
  await client.status();
  // Both ends of the connection are in this process.
  assert.ok(open() >= before + 2);
  await client.close();
  for (let round = 0; open() > before && round < 100; round += 1) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.equal(open(), before);
});
