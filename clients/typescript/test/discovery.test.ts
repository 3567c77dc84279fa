import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type Server, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";

import { type Surroundings, type Wanted, discover, stateDir } from "#dist/discovery.js";
import { ConnectError } from "@memoryd/client";

let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "memoryd-"));
});

afterEach(() => {
  rmSync(home, { recursive: true });
});

function put(path: string, content: string): string {
  const file = join(home, path);
  mkdirSync(join(file, ".."), { recursive: true });
  writeFileSync(file, content);
  return file;
}

function surroundings(env: Surroundings["env"] = {}): Surroundings {
  return { env, home };
}

function address(env: Surroundings["env"], wanted: Wanted = {}): string {
  return discover(wanted, surroundings(env))
    .addresses.map(({ text }) => text)
    .join();
}

function token(env: Surroundings["env"], wanted: Wanted = {}): string {
  return discover({ address: "127.0.0.1:7627", ...wanted }, surroundings(env)).token;
}

async function listening(path: string): Promise<Server> {
  mkdirSync(join(path, ".."), { recursive: true });
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return server;
}

test("the state directory is the first of two variables and three folders", () => {
  const state = (env: Surroundings["env"]): string => stateDir(surroundings(env));
  assert.equal(state({}), join(home, ".openclaw"));
  mkdirSync(join(home, ".moltbot"));
  assert.equal(state({}), join(home, ".moltbot"));
  mkdirSync(join(home, ".clawdbot"));
  assert.equal(state({}), join(home, ".clawdbot"));
  mkdirSync(join(home, ".openclaw"));
  assert.equal(state({}), join(home, ".openclaw"));
  assert.equal(state({ OPENCLAW_HOME: "~/h", OPENCLAW_STATE_DIR: "undefined" }), join(home, "h", ".openclaw"));
  assert.equal(state({ OPENCLAW_HOME: "~/h", OPENCLAW_STATE_DIR: "~/b" }), join(home, "h", "b"));
  assert.equal(state({ OPENCLAW_STATE_DIR: "~/b" }), join(home, "b"));
  assert.equal(state({ MEMORYD_STATE_DIR: "/a", OPENCLAW_STATE_DIR: "~/b" }), "/a");
  assert.equal(state({ MEMORYD_STATE_DIR: "  ", OPENCLAW_STATE_DIR: "~" }), home);
});

test("the address is the argument, else the variable, else what the daemon noted, else the usual socket", () => {
  assert.equal(address({}), `unix:${home}/.openclaw/run/memoryd.sock`);
  assert.equal(address({ XDG_RUNTIME_DIR: "/run/user/7" }), "unix:/run/user/7/memoryd/memoryd.sock");
  assert.equal(address({ XDG_RUNTIME_DIR: "run/user" }), `unix:${home}/.openclaw/run/memoryd.sock`);
  put(".openclaw/memoryd.endpoint.json", '{"addresses": ["unix:/nowhere/m.sock", "127.0.0.1:7001"], "pid": 1}');
  assert.equal(address({ XDG_RUNTIME_DIR: "/run/user/7" }), "127.0.0.1:7001");
  assert.equal(address({ MEMORYD_ADDRESS: " " }), "127.0.0.1:7001");
  assert.equal(address({ MEMORYD_ADDRESS: "127.0.0.1:7002" }), "127.0.0.1:7002");
  assert.equal(address({ MEMORYD_ADDRESS: "127.0.0.1:7002" }, { address: "127.0.0.1:7003" }), "127.0.0.1:7003");
});

test("a socket that the daemon noted counts while it exists", async () => {
  const path = join(home, ".openclaw", "m.sock");
  put(".openclaw/memoryd.endpoint.json", JSON.stringify({ addresses: [`unix:${path}`] }));
  assert.notEqual(address({}), `unix:${path}`);
  const server = await listening(path);
  assert.equal(address({}), `unix:${path}`);
  await new Promise((resolve) => server.close(resolve));
});

test("a note that cannot be understood counts as none", () => {
  for (const note of ["", "null", "[]", '{"addresses": 7}', '{"addresses": [7, "nonsense"]}']) {
    put(".openclaw/memoryd.endpoint.json", note);
    assert.equal(address({}), `unix:${home}/.openclaw/run/memoryd.sock`, note);
  }
});

test("the token is the argument, else that of the file that is named, else the daemon's own on this machine", () => {
  assert.equal(token({}), "");
  put(".openclaw/memoryd.token", "\n# the owner's\r\n  own \nsecond\n");
  assert.equal(token({}), "own");
  const named = put("named", "named\n");
  assert.equal(token({ MEMORYD_TOKEN_FILE: named }), "named");
  assert.equal(token({ MEMORYD_TOKEN_FILE: "~/named" }), "named");
  assert.equal(token({ MEMORYD_TOKEN_FILE: named }, { token: "mine" }), "mine");
  assert.equal(token({ MEMORYD_TOKEN_FILE: named }, { token: "" }), "");
  assert.equal(token({}, { address: "memory.example:7627", tls: {} }), "");
});

test("no token is sent over a Unix socket", () => {
  assert.equal(token({}, { address: "unix:/m.sock", token: "mine" }), "");
});

test("a token file that is named and of no use is an error that names it", () => {
  assert.throws(() => token({ MEMORYD_TOKEN_FILE: "~/absent" }), { name: "ConnectError", message: /\/absent: ENOENT/ });
  const empty = put("empty", "# nothing\n\n");
  assert.throws(() => token({ MEMORYD_TOKEN_FILE: empty }), {
    name: "ConnectError",
    message: /empty contains no token/,
  });
  mkdirSync(join(home, ".openclaw", "memoryd.token"), { recursive: true });
  assert.throws(() => token({}), { name: "ConnectError", message: /\/memoryd\.token: EISDIR/ });
});

test("a token is not sent in the clear beyond this machine", () => {
  const away = "memory.example:7627";
  const refused = { name: "ConnectError", message: /refusing to send the token to memory\.example:7627 in the clear/ };
  assert.throws(() => token({}, { address: away, token: "mine" }), refused);
  const named = put("named", "named\n");
  assert.throws(() => token({ MEMORYD_TOKEN_FILE: named }, { address: away }), refused);
  assert.equal(token({}, { address: away, token: "mine", tls: {} }), "mine");
  assert.equal(token({ MEMORYD_TLS_CA: "/ca.pem" }, { address: away, token: "mine" }), "mine");
  assert.equal(token({}, { address: away }), "");
  assert.equal(token({}, { address: "[::1]:7627", token: "mine" }), "mine");
});

test("a list of addresses is on this machine if all of them are", () => {
  put(".openclaw/memoryd.token", "own\n");
  assert.equal(address({ MEMORYD_ADDRESS: " localhost:1 , [::1]:2 " }), "localhost:1,[::1]:2");
  assert.equal(token({}, { address: "localhost:1,[::1]:2" }), "own");
  const away = { address: "localhost:1,memory.example:2,10.0.0.7:3" };
  assert.equal(token({}, away), "");
  assert.equal(token({}, { ...away, token: "mine", tls: {} }), "mine");
  assert.throws(() => token({}, { ...away, token: "mine" }), {
    name: "ConnectError",
    message: /refusing to send the token to memory\.example:2, 10\.0\.0\.7:3 in the clear/,
  });
});

test("TLS is the argument, else what the variables name, and nothing over a Unix socket", () => {
  const env = { MEMORYD_TLS_CA: "~/ca.pem", MEMORYD_TLS_SERVER_NAME: "n" };
  const tls = (wanted: Wanted, from: Surroundings["env"] = env): unknown => discover(wanted, surroundings(from)).tls;
  const [tcp, unix] = [{ address: "127.0.0.1:7627" }, { address: "unix:/m.sock" }];
  const named = { caFile: join(home, "ca.pem"), certFile: undefined, keyFile: undefined, serverName: "n" };
  assert.deepEqual(tls(tcp), named);
  assert.deepEqual(tls({ ...tcp, tls: {} }), {});
  assert.equal(tls({ ...tcp, tls: false }), undefined);
  assert.equal(tls(unix), undefined);
  assert.equal(tls(tcp, { MEMORYD_TLS_SERVER_NAME: "n" }), undefined);
});

test("MEMORYD_TLS enables or disables TLS regardless of other variables", () => {
  const tls = (from: Surroundings["env"], wanted: Wanted = {}): unknown =>
    discover({ address: "127.0.0.1:7627", ...wanted }, surroundings(from)).tls;
  const bare = { caFile: undefined, certFile: undefined, keyFile: undefined, serverName: undefined };
  for (const yes of ["1", " Yes ", "TRUE", "on"]) {
    assert.deepEqual(tls({ MEMORYD_TLS: yes }), bare);
  }
  for (const no of ["0", "No", "false", "OFF"]) {
    assert.equal(tls({ MEMORYD_TLS: no, MEMORYD_TLS_CA: "/ca.pem" }), undefined);
  }
  assert.deepEqual(tls({ MEMORYD_TLS: "1", MEMORYD_TLS_CA: "/ca.pem", MEMORYD_TLS_SERVER_NAME: "n" }), {
    ...bare,
    caFile: "/ca.pem",
    serverName: "n",
  });
  assert.deepEqual(tls({ MEMORYD_TLS: "0" }, { tls: {} }), {});
  assert.throws(() => tls({ MEMORYD_TLS: "maybe" }), {
    name: "ConnectError",
    message: /MEMORYD_TLS is "maybe"; write 1/,
  });
  assert.equal(tls({ MEMORYD_TLS: "maybe" }, { address: "unix:/m.sock" }), undefined);
});

test("what is refused is a ConnectError of the package", () => {
  assert.throws(() => discover({ address: "nonsense" }, surroundings()), ConnectError);
});
