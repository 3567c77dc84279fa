import assert from "node:assert/strict";
import { test } from "node:test";

import { parseAddress } from "#dist/address.js";
import { ConnectError } from "@memoryd/client";

test("an address says what to dial, and whether it is on this machine", () => {
  const cases: [string, string, boolean][] = [
    ["unix:/run/m.sock", "unix:/run/m.sock", true],
    ["unix:///run/m.sock", "unix:/run/m.sock", true],
    ["unix:m.sock", `unix:${process.cwd()}/m.sock`, true],
    ["127.0.0.1:7627", "dns:127.0.0.1:7627", true],
    ["127.9.9.9:7627", "dns:127.9.9.9:7627", true],
    ["[::1]:7627", "dns:[::1]:7627", true],
    ["[0:0:0:0:0:0:0:1]:7627", "dns:[0:0:0:0:0:0:0:1]:7627", true],
    ["localhost:7627", "dns:localhost:7627", true],
    ["memory.example:443", "dns:memory.example:443", false],
    ["10.0.0.7:7627", "dns:10.0.0.7:7627", false],
    ["[2001:db8::7]:7627", "dns:[2001:db8::7]:7627", false],
    ["127.0.0.1.example:7627", "dns:127.0.0.1.example:7627", false],
  ];
  for (const [text, target, loopback] of cases) {
    const address = parseAddress(text);
    assert.deepEqual([address.target, address.loopback], [target, loopback], text);
  }
});

test("what is no address is refused, and the message shows how one is written", () => {
  for (const text of [
    "",
    "7627",
    "localhost",
    "localhost:",
    "localhost:0",
    "localhost:65536",
    "::1:7627",
    "[memory]:1",
  ]) {
    assert.throws(() => parseAddress(text), { name: "ConnectError", message: /127\.0\.0\.1:7627/ }, text);
  }
  assert.throws(() => parseAddress("unix:"), ConnectError);
});

test("a socket's path that the system does not take is refused", () => {
  assert.throws(() => parseAddress(`unix:/${"é".repeat(54)}`), { message: /109 bytes long; the system allows 107/ });
});
