// A real daemon in a temporary folder, and a stand-in for OpenClaw's side of the plugin API.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { TestContext } from "node:test";

import { Connection } from "../src/connection.js";
import type { AnyAgentTool, Logger, MemoryPluginCapability, OpenClawPluginApi, ToolContext } from "../src/host.js";
import plugin from "../src/index.js";
import { readSettings } from "../src/settings.js";

/** The memoryd command of the repository. */
export const COMMAND = resolve(import.meta.dirname, "../../../../.venv/bin/memoryd");

const NOTES: Readonly<Record<string, string>> = {
  "MEMORY.md":
    "# Long-term memory\n\n- The staging database is called quokka. <!-- importance: 8 -->\n- Ana owns it.\n",
  "USER.md": "The user prefers short answers.\n",
  "memory/2026-02-08.md": "# Log\n\nWe moved the deployment to Thursday.\n",
};

/** A workspace, a state directory, and a daemon that can be started and killed. */
export class Home {
  readonly folder = mkdtempSync(join(tmpdir(), "memoryd-openclaw-"));
  readonly workspace = join(this.folder, "workspace");
  readonly state = join(this.folder, "state");
  readonly address = `unix:${join(this.folder, "m.sock")}`;
  #daemon: ChildProcess | undefined;

  constructor(context: TestContext, settings: object = {}) {
    context.after(async () => {
      await this.kill();
      rmSync(this.folder, { recursive: true, force: true });
    });
    mkdirSync(this.state);
    for (const [path, text] of Object.entries(NOTES)) {
      this.write(path, text);
    }
    const defaults = { workspace: this.workspace };
    const memory = { search: { provider: "none" } };
    writeFileSync(join(this.state, "openclaw.json"), JSON.stringify({ agents: { defaults }, memory, ...settings }));
  }

  /** The environment of a daemon that serves this folder. */
  get environment(): Record<string, string> {
    return { PATH: process.env.PATH ?? "", HOME: this.folder, OPENCLAW_STATE_DIR: this.state };
  }

  /** Writes a file of the workspace. */
  write(path: string, text: string): void {
    const file = join(this.workspace, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }

  /** Starts the daemon and waits until it listens. */
  async start(): Promise<void> {
    const args = ["serve", "--listen", this.address];
    const daemon = spawn(COMMAND, args, { env: this.environment, stdio: ["ignore", "pipe", "ignore"] });
    this.#daemon = daemon;
    daemon.stdout.setEncoding("utf8");
    let text = "";
    for await (const part of daemon.stdout) {
      text += String(part);
      if (text.includes("listening on")) {
        daemon.stdout.resume();
        return;
      }
    }
    throw new Error(`the daemon ended: ${text}`);
  }

  /** Sends the daemon a signal. */
  signal(name: NodeJS.Signals): void {
    this.#daemon?.kill(name);
  }

  /** Kills the daemon and waits for its end. */
  async kill(): Promise<void> {
    const daemon = this.#daemon;
    this.#daemon = undefined;
    if (daemon?.exitCode === null && daemon.signalCode === null) {
      daemon.kill("SIGKILL");
      await once(daemon, "exit");
    }
  }
}

/** A log that can be read. */
export class Log implements Logger {
  readonly lines: string[] = [];
  readonly debug = (text: string): void => void this.lines.push(`debug ${text}`);
  readonly info = (text: string): void => void this.lines.push(`info ${text}`);
  readonly warn = (text: string): void => void this.lines.push(`warn ${text}`);
  readonly error = (text: string): void => void this.lines.push(`error ${text}`);
}

type Handler = (event: object, context: object) => Promise<unknown>;
type Factory = (context: ToolContext) => AnyAgentTool | null;
interface Service {
  start(context: object): unknown;
  stop(): Promise<void>;
}

/** OpenClaw's side of the API: keeps what the plugin registers. */
export class FakeHost {
  readonly log = new Log();
  readonly tools = new Map<string, Factory>();
  readonly optionalTools: string[] = [];
  readonly hooks = new Map<string, Handler>();
  readonly commands: unknown[] = [];
  capability: MemoryPluginCapability | undefined;
  service: Service | undefined;

  constructor(
    readonly config: object,
    stateDir: string,
    registrationMode = "full",
  ) {
    const entries = (config as { plugins?: { entries?: { memoryd?: { config?: object } } } }).plugins?.entries;
    const api = {
      registrationMode,
      config,
      pluginConfig: entries?.memoryd?.config ?? {},
      logger: this.log,
      runtime: { config: { current: () => config }, state: { resolveStateDir: () => stateDir } },
      registerMemoryCapability: (capability: MemoryPluginCapability) => (this.capability = capability),
      registerTool: (factory: Factory, { names, optional }: { names: string[]; optional?: boolean }) => {
        for (const name of names) {
          this.tools.set(name, factory);
          if (optional) {
            this.optionalTools.push(name);
          }
        }
      },
      registerCli: (registrar: unknown) => this.commands.push(registrar),
      registerService: (service: Service) => (this.service = service),
      on: (name: string, handler: Handler) => this.hooks.set(name, handler),
    };
    plugin.register(api as unknown as OpenClawPluginApi);
  }

  /** The runtime of the capability. */
  get runtime(): NonNullable<MemoryPluginCapability["runtime"]> {
    const runtime = this.capability?.runtime;
    if (runtime === undefined) {
      throw new Error("no capability was registered");
    }
    return runtime;
  }

  /** Runs a tool in a session and returns the details of its result. */
  async runTool(name: string, params: object, context: object = {}): Promise<Record<string, unknown>> {
    const session = { agentId: "main", sessionKey: "agent:main:main", config: this.config, ...context };
    const made = this.tools.get(name)?.(session);
    if (!made) {
      throw new Error(`there is no tool ${name}`);
    }
    const { content, details } = await made.execute("call-1", params);
    const [first] = content as { text: string }[];
    if (first?.text !== JSON.stringify(details, null, 2)) {
      throw new Error("the text of the result is not its details");
    }
    return details as Record<string, unknown>;
  }
}

/** Starts a daemon and a host with the plugin; both end with the test. */
export async function serving(
  context: TestContext,
  { settings = {}, plugin: own = {} }: { settings?: object; plugin?: object } = {},
): Promise<{ home: Home; host: FakeHost }> {
  const home = new Home(context, settings);
  await home.start();
  return { home, host: hostOf(context, home, { settings, plugin: own }) };
}

/** Returns a host with the plugin, whose settings name the daemon of `home`. */
export function hostOf(
  context: TestContext,
  home: Home,
  { settings = {}, plugin: own = {} }: { settings?: object; plugin?: object } = {},
): FakeHost {
  const entries = { memoryd: { config: { address: home.address, ...own } }, "memory-core": { enabled: false } };
  const host = new FakeHost({ plugins: { slots: { memory: "memoryd" }, entries }, ...settings }, home.state);
  context.after(() => host.service?.stop());
  return host;
}

/** Returns a connection to the daemon of `home`, which ends with the test. */
export function connectionTo(context: TestContext, home: Home): Connection {
  const settings = readSettings({ address: home.address });
  const connection = new Connection(settings, new Log(), () => home.state);
  context.after(() => connection.close());
  return connection;
}
