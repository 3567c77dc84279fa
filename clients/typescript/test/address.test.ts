import assert from "node:assert/strict";
import { test } from "node:test";

import { parseAddress, parseAddresses } from "#dist/address.js";
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

test("a list has TCP addresses, and spaces around the commas are ignored", () => {
  const texts = (text: string): string[] => parseAddresses(text).map((address) => address.text);
  assert.deepEqual(texts("localhost:7627"), ["localhost:7627"]);
  assert.deepEqual(texts("a:1, b:2 ,[::1]:3"), ["a:1", "b:2", "[::1]:3"]);
  assert.deepEqual(texts("unix:/run/a,b:1"), ["unix:/run/a,b:1"]);
  const most = Array.from({ length: 64 }, (_, port) => `a:${port + 1}`);
  assert.deepEqual(texts(most.join()), most);
  const refused: [string, RegExp][] = [
    [[...most, "a:65"].join(), /^a list has at most 64 addresses, not 65$/],
    ["a:1,,b:2", /^"a:1,,b:2" contains an empty address: write a list as HOST:PORT,HOST:PORT$/],
    ["a:1,", /^"a:1," contains an empty address/],
    ["a:1,unix:/m.sock", /^"a:1,unix:\/m\.sock" contains "unix:\/m\.sock": write a list/],
    ["a:1,b:2,A:1", /^"a:1,b:2,A:1" contains "a:1" more than once$/],
    ["a:1,b:0", /^"b:0" is not an address/],
  ];
  for (const [text, message] of refused) {
    assert.throws(() => parseAddresses(text), { name: "ConnectError", message }, text);
  }
});
