// Settings with which OpenClaw answers memory calls from another plugin, or does not run the plugin's recall.

import { type HostConfig, PLUGIN_ID, valueAt } from "./host.js";

const CURE =
  "Run `openclaw config set plugins.entries.memory-core.enabled false`, or, to keep memory-core, " +
  "`openclaw config set plugins.entries.memoryd.config.dreaming.enabled false`.";

/** Returns a warning for each setting with which another plugin answers instead of memoryd, or recall does not run. */
export function findConflicts(cfg: HostConfig | undefined): string[] {
  const slot = valueAt(cfg, "plugins", "slots", "memory");
  if (slot !== PLUGIN_ID) {
    return [
      `MEMORYD DOES NOT ANSWER: the memory slot has ${JSON.stringify(slot ?? "memory-core")}. ` +
        "Run `openclaw config set plugins.slots.memory memoryd`.",
    ];
  }
  return [...sidecarWarnings(cfg), ...recallWarnings(cfg)];
}

// With dreaming, which is on by default, OpenClaw loads memory-core beside the plugin in the slot. It registers the same
// tools, and the plugin that is loaded first gets them.
function sidecarWarnings(cfg: HostConfig | undefined): string[] {
  const loaded = valueAt(cfg, "plugins", "entries", "memory-core", "enabled") !== false;
  const dreams = own(cfg, "config", "dreaming", "enabled") !== false;
  return loaded && dreams
    ? [
        "ANOTHER MEMORY MAY ANSWER: OpenClaw loads memory-core for dreaming, and memory-core registers memory_search " +
          `and memory_get, too. The agent then searches OpenClaw's own index instead of memoryd. ${CURE}`,
      ]
    : [];
}

function recallWarnings(cfg: HostConfig | undefined): string[] {
  if (own(cfg, "config", "recall") !== true) {
    return [];
  }
  const set = (key: string, value: boolean): string =>
    `RECALL DOES NOT RUN: plugins.entries.memoryd.config.recall is true, but OpenClaw does not allow the plugin's hook. ` +
    `Run \`openclaw config set plugins.entries.memoryd.hooks.${key} ${value} --strict-json\`.`;
  return [
    ...(own(cfg, "hooks", "allowConversationAccess") === true ? [] : [set("allowConversationAccess", true)]),
    ...(own(cfg, "hooks", "allowPromptInjection") === false ? [set("allowPromptInjection", true)] : []),
  ];
}

function own(cfg: HostConfig | undefined, ...keys: string[]): unknown {
  return valueAt(cfg, "plugins", "entries", PLUGIN_ID, ...keys);
}
