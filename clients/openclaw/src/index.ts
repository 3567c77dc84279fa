// The entry of the plugin: registers everything with OpenClaw.

import { WorkspaceCheck, memoryCapability } from "./capability.js";
import { registerCommands } from "./cli.js";
import { findConflicts } from "./conflicts.js";
import { Connection, reasonOf } from "./connection.js";
import { registerHooks } from "./hooks.js";
import { type AnyAgentTool, type OpenClawPluginApi, PLUGIN_ID, type ToolContext } from "./host.js";
import { readSettings } from "./settings.js";
import { type Session, appendTool, getTool, searchTool, sessionOf } from "./tools.js";

type MakeTool = (connection: Connection, session: Session) => AnyAgentTool;

/** The plugin. OpenClaw calls `register` several times per process; it opens no connection. */
export default {
  id: PLUGIN_ID,
  name: "memoryd",
  description: "Memory that is indexed and searched by a memoryd daemon.",
  register,
};

function register(api: OpenClawPluginApi): void {
  const connection = new Connection(readSettings(api.pluginConfig), api.logger, () =>
    api.runtime.state.resolveStateDir(),
  );
  api.registerCli((context) => {
    registerCommands(context, connection);
  }, COMMANDS);
  if (api.registrationMode === "cli-metadata" || api.registrationMode === "setup-only") {
    return;
  }
  api.registerMemoryCapability(memoryCapability(api, connection));
  registerTools(api, connection);
  registerHooks(api, connection);
  api.registerService({
    id: PLUGIN_ID,
    start({ config, logger }) {
      for (const warning of findConflicts(config)) {
        logger.warn(`memoryd: ${warning}`);
      }
      // Connects, so that the first tool call does not have to, and starts the daemon if `autostart` is set.
      connection
        .call((client) => client.listAgents({ pageSize: 1 }))
        .catch((error: unknown) => {
          logger.warn(`${reasonOf(error)} (memory is unavailable until the daemon runs)`);
        });
    },
    stop: () => connection.close(),
  });
}

const COMMANDS = {
  descriptors: [{ name: "memory", description: "Search, inspect and index memory with memoryd", hasSubcommands: true }],
};

function registerTools(api: OpenClawPluginApi, connection: Connection): void {
  const workspaces = new WorkspaceCheck(api.logger, connection);
  const factory =
    (make: MakeTool) =>
    (context: ToolContext): AnyAgentTool | null => {
      const session = sessionOf(context);
      if (session === undefined) {
        return null;
      }
      const made = make(connection, session);
      const { workspaceDir } = context;
      if (workspaceDir === undefined || session.sandboxed) {
        return made;
      }
      const execute: AnyAgentTool["execute"] = async (...call) => {
        const result = await made.execute(...call);
        void workspaces.run(session.agentId, workspaceDir);
        return result;
      };
      return { ...made, execute };
    };
  api.registerTool(factory(searchTool), { names: ["memory_search"] });
  api.registerTool(factory(getTool), { names: ["memory_get"] });
  api.registerTool(factory(appendTool), { names: ["memory_append"], optional: true });
}
