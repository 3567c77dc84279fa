// The client's methods by their names in the runner's protocol, with their message types.

import type {
  DescMessage,
  DescMethodServerStreaming,
  DescMethodUnary,
  Message,
  MessageShape,
} from "@bufbuild/protobuf";
import type { CallOptions, EventStream, MemorydClient } from "@memoryd/client";
import { EntryService, MemoryService } from "@memoryd/client/v1";

/** A unary method. The request is a message of `input`. */
export interface UnaryMethod {
  readonly input: DescMessage;
  readonly output: DescMessage;
  call(client: MemorydClient, request: never, options: CallOptions): Promise<Message>;
}

/** A streaming method. The request is a message of `input`. */
export interface StreamMethod {
  readonly input: DescMessage;
  readonly output: DescMessage;
  open(client: MemorydClient, request: never, options: CallOptions): EventStream<Message>;
}

function unary<I extends DescMessage, O extends DescMessage>(
  { input, output }: DescMethodUnary<I, O>,
  call: (client: MemorydClient, request: MessageShape<I>, options: CallOptions) => Promise<MessageShape<O>>,
): UnaryMethod {
  return { input, output, call };
}

function streaming<I extends DescMessage, O extends DescMessage>(
  { input, output }: DescMethodServerStreaming<I, O>,
  open: (client: MemorydClient, request: MessageShape<I>, options: CallOptions) => EventStream<MessageShape<O>>,
): StreamMethod {
  return { input, output, open };
}

const memory = MemoryService.method;
const entry = EntryService.method;

/** The unary methods. */
export const UNARY: Readonly<Record<string, UnaryMethod>> = {
  search: unary(memory.memorySearch, (client, request, options) => client.search(request, options)),
  explain_miss: unary(memory.explainMiss, (client, request, options) => client.explainMiss(request, options)),
  recall: unary(memory.memoryRecall, (client, request, options) => client.recall(request, options)),
  get: unary(memory.memoryGet, (client, request, options) => client.get(request, options)),
  status: unary(memory.status, (client, request, options) => client.status(request, options)),
  flush_decision: unary(memory.flushDecision, (client, request, options) => client.flushDecision(request, options)),
  append: unary(memory.memoryAppend, (client, request, options) => client.append(request, options)),
  write: unary(memory.memoryWrite, (client, request, options) => client.write(request, options)),
  move: unary(memory.memoryMove, (client, request, options) => client.move(request, options)),
  history: unary(memory.memoryHistory, (client, request, options) => client.history(request, options)),
  restore: unary(memory.memoryRestore, (client, request, options) => client.restore(request, options)),
  forget: unary(memory.memoryForget, (client, request, options) => client.forget(request, options)),
  session_context: unary(memory.sessionContext, (client, request, options) => client.sessionContext(request, options)),
  session_archive: unary(memory.sessionArchive, (client, request, options) => client.sessionArchive(request, options)),
  session_append: unary(memory.sessionAppend, (client, request, options) => client.sessionAppend(request, options)),
  list_agents: unary(memory.listAgents, (client, request, options) => client.listAgents(request, options)),
  list_files: unary(memory.listFiles, (client, request, options) => client.listFiles(request, options)),
  remember: unary(entry.remember, (client, request, options) => client.entries.remember(request, options)),
  recall_entries: unary(entry.recall, (client, request, options) => client.entries.recall(request, options)),
  forget_entry: unary(entry.forget, (client, request, options) => client.entries.forget(request, options)),
  list_entries: unary(entry.listEntries, (client, request, options) => client.entries.list(request, options)),
  suggest_capture: unary(entry.suggestCapture, (client, request, options) =>
    client.entries.suggestCapture(request, options),
  ),
  recall_block: unary(entry.recallBlock, (client, request, options) => client.entries.recallBlock(request, options)),
};

/** The streaming methods. */
export const STREAMS: Readonly<Record<string, StreamMethod>> = {
  sync: streaming(memory.sync, (client, request, options) => client.sync(request, options)),
  watch: streaming(memory.watchIndex, (client, request, options) => client.watch(request, options)),
};
