// The memory section of a system prompt, and when an agent writes notes before its context is compacted. Both are
// computed here, since OpenClaw asks for them synchronously.

import { type FlushPlan, type HostConfig, type PromptParameters, isMainSession, valueAt } from "./host.js";

const WHEN = "Before you answer about earlier work, decisions, dates, people, preferences or open tasks";

/** Returns the lines of the memory section; none if the agent has no memory tool. */
export function buildPrompt({ availableTools, citationsMode, agentId, agentSessionKey }: PromptParameters): string[] {
  const [search, get, append] = ["memory_search", "memory_get", "memory_append"].map((name) =>
    availableTools.has(name),
  );
  if (!search && !get) {
    return [];
  }
  const recall = !search
    ? `${WHEN} that a memory file has been named for, read the lines that you need with memory_get.`
    : get
      ? `${WHEN}, call memory_search with a question in plain words. Then read the lines that you need with memory_get.`
      : `${WHEN}, call memory_search with a question in plain words, and answer from its results.`;
  const main = agentSessionKey === undefined || isMainSession(agentSessionKey, agentId ?? "main");
  const log = append ? "with memory_append" : "in today's log, memory/YYYY-MM-DD.md";
  return [
    "## Memory",
    `${recall} If you find little or nothing, say that you looked; do not fill the gap with a guess. If a result says ` +
      "`disabled` or `stale`, or has a `warning`, tell the user.",
    `When you are asked to remember something, write it down immediately ${log}` +
      `${main ? ", or in MEMORY.md if it should be kept permanently" : ""}. What you do not write down is lost when the ` +
      "session ends.",
    citationsMode === "off"
      ? "Citations are off: do not name files or line numbers in your replies unless you are asked to."
      : "Name the source as path#line if that helps to check what you say.",
    "",
  ];
}

const RESERVE_TOKENS = 20_000;
const SOFT_THRESHOLD_TOKENS = 4_000;
const TRANSCRIPT_BYTES = 2 * 1024 * 1024;

const FLUSH_RULES = [
  "Append only: keep what the file already contains, and create it if it does not exist.",
  "Do not write to any other file: MEMORY.md, USER.md and the other files of the workspace are read-only now.",
  "Do not create variants of the file, such as one with a time in its name.",
  "If there is nothing to store, reply with NO_REPLY only.",
];

/**
 * Returns when and how a flush takes place, or null if `agents.defaults.compaction.memoryFlush.enabled` is false. In a
 * small context window, the reserve is a quarter of the window, and the soft threshold at most half of the rest.
 */
export function planFlush(cfg: HostConfig | undefined, now: Date, contextWindowTokens?: number): FlushPlan | null {
  const settings = (...keys: string[]): unknown =>
    valueAt(cfg, "agents", "defaults", "compaction", "memoryFlush", ...keys);
  if (settings("enabled") === false) {
    return null;
  }
  const window = contextWindowTokens !== undefined && contextWindowTokens > 0 ? contextWindowTokens : undefined;
  const reserve = window === undefined ? RESERVE_TOKENS : Math.min(RESERVE_TOKENS, Math.floor(window / 4));
  const soft = count(settings("softThresholdTokens")) ?? SOFT_THRESHOLD_TOKENS;
  const most = window === undefined ? Infinity : Math.floor((window - reserve) / 2);
  const model = settings("model");
  const zone = valueAt(cfg, "agents", "defaults", "userTimezone");
  const { day, time } = localTime(now, typeof zone === "string" ? zone : undefined);
  const path = `memory/${day}.md`;
  return {
    softThresholdTokens: Math.min(soft, most),
    forceFlushTranscriptBytes: bytes(settings("forceFlushTranscriptBytes")) ?? TRANSCRIPT_BYTES,
    reserveTokensFloor: reserve,
    ...(typeof model === "string" && model !== "" && { model }),
    prompt: [
      `The context of this session is about to be compacted. Write what should be remembered to ${path}.`,
      ...FLUSH_RULES,
      `Current time: ${time}`,
    ].join("\n"),
    systemPrompt: [
      `This turn takes place shortly before compaction. Its only purpose is to store durable memories in ${path}.`,
      ...FLUSH_RULES,
    ].join("\n"),
    relativePath: path,
  };
}

function count(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? Math.floor(value) : undefined;
}

// A number of bytes, or a text such as "2mb" or "512 KiB".
function bytes(value: unknown): number | undefined {
  if (typeof value !== "string") {
    return count(value);
  }
  const match = /^\s*(\d+(?:\.\d+)?)\s*(b|kb|kib|k|mb|mib|m|gb|gib|g)?\s*$/i.exec(value);
  if (match === null) {
    return undefined;
  }
  const power = ["b", "k", "m", "g"].indexOf((match[2] ?? "b").toLowerCase().charAt(0));
  return Math.floor(Number(match[1]) * 1024 ** power);
}

// The date and the time in a zone; an unknown zone means that of this machine.
function localTime(now: Date, zone: string | undefined): { day: string; time: string } {
  let format: Intl.DateTimeFormat;
  const options = { dateStyle: "short", timeStyle: "long" } as const;
  try {
    format = new Intl.DateTimeFormat("sv-SE", { ...options, timeZone: zone });
  } catch {
    format = new Intl.DateTimeFormat("sv-SE", options);
  }
  const time = format.format(now);
  return { day: time.slice(0, 10), time };
}
