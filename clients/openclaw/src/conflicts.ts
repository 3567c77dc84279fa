// Settings with which OpenClaw answers memory calls from another plugin.

import { type HostConfig, PLUGIN_ID, valueAt } from "./host.js";

const CURE =
  "Run `openclaw config set plugins.entries.memory-core.enabled false`, or, to keep memory-core, " +
  "`openclaw config set plugins.entries.memoryd.config.dreaming.enabled false`.";

/** Returns a warning for each setting with which another plugin answers instead of memoryd. */
export function findConflicts(cfg: HostConfig | undefined): string[] {
  const slot = valueAt(cfg, "plugins", "slots", "memory");
  if (slot !== PLUGIN_ID) {
    return [
      `MEMORYD DOES NOT ANSWER: the memory slot has ${JSON.stringify(slot ?? "memory-core")}. ` +
        "Run `openclaw config set plugins.slots.memory memoryd`.",
    ];
  }
  // With dreaming, which is on by default, OpenClaw loads memory-core beside the plugin in the slot. It registers the
  // same tools, and the plugin that is loaded first gets them.
  const loaded = valueAt(cfg, "plugins", "entries", "memory-core", "enabled") !== false;
  const dreams = valueAt(cfg, "plugins", "entries", PLUGIN_ID, "config", "dreaming", "enabled") !== false;
  return loaded && dreams
    ? [
        "ANOTHER MEMORY MAY ANSWER: OpenClaw loads memory-core for dreaming, and memory-core registers memory_search " +
          `and memory_get, too. The agent then searches OpenClaw's own index instead of memoryd. ${CURE}`,
      ]
    : [];
}
