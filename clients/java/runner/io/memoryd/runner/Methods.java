package io.memoryd.runner;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import io.memoryd.client.EventStream;
import io.memoryd.client.Memoryd;
import io.memoryd.client.MemorydClient;
import io.memoryd.v1.EntryServiceGrpc.EntryServiceBlockingStub;
import io.memoryd.v1.ExplainMissRequest;
import io.memoryd.v1.FlushDecisionRequest;
import io.memoryd.v1.ForgetRequest;
import io.memoryd.v1.ListAgentsRequest;
import io.memoryd.v1.ListEntriesRequest;
import io.memoryd.v1.ListFilesRequest;
import io.memoryd.v1.MemoryAppendRequest;
import io.memoryd.v1.MemoryForgetRequest;
import io.memoryd.v1.MemoryGetRequest;
import io.memoryd.v1.MemoryHistoryRequest;
import io.memoryd.v1.MemoryMoveRequest;
import io.memoryd.v1.MemoryRecallRequest;
import io.memoryd.v1.MemoryRestoreRequest;
import io.memoryd.v1.MemorySearchRequest;
import io.memoryd.v1.MemoryServiceGrpc.MemoryServiceBlockingStub;
import io.memoryd.v1.MemoryWriteRequest;
import io.memoryd.v1.RecallBlockRequest;
import io.memoryd.v1.RecallRequest;
import io.memoryd.v1.RememberRequest;
import io.memoryd.v1.SessionAppendRequest;
import io.memoryd.v1.SessionArchiveRequest;
import io.memoryd.v1.SessionContextRequest;
import io.memoryd.v1.StatusRequest;
import io.memoryd.v1.SuggestCaptureRequest;
import io.memoryd.v1.SyncRequest;
import io.memoryd.v1.WatchIndexRequest;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;

/** The methods of the API by their names in the protocol. */
final class Methods {
    private static final Map<String, Unary<?>> UNARY = Map.ofEntries(
            memory("search", MemorySearchRequest.getDefaultInstance(), MemoryServiceBlockingStub::memorySearch),
            memory("explain_miss", ExplainMissRequest.getDefaultInstance(), MemoryServiceBlockingStub::explainMiss),
            memory("recall", MemoryRecallRequest.getDefaultInstance(), MemoryServiceBlockingStub::memoryRecall),
            memory("get", MemoryGetRequest.getDefaultInstance(), MemoryServiceBlockingStub::memoryGet),
            memory("status", StatusRequest.getDefaultInstance(), MemoryServiceBlockingStub::status),
            memory(
                    "flush_decision",
                    FlushDecisionRequest.getDefaultInstance(),
                    MemoryServiceBlockingStub::flushDecision),
            memory("append", MemoryAppendRequest.getDefaultInstance(), MemoryServiceBlockingStub::memoryAppend),
            memory("write", MemoryWriteRequest.getDefaultInstance(), MemoryServiceBlockingStub::memoryWrite),
            memory("move", MemoryMoveRequest.getDefaultInstance(), MemoryServiceBlockingStub::memoryMove),
            memory("history", MemoryHistoryRequest.getDefaultInstance(), MemoryServiceBlockingStub::memoryHistory),
            memory("restore", MemoryRestoreRequest.getDefaultInstance(), MemoryServiceBlockingStub::memoryRestore),
            memory("forget", MemoryForgetRequest.getDefaultInstance(), MemoryServiceBlockingStub::memoryForget),
            memory(
                    "session_context",
                    SessionContextRequest.getDefaultInstance(),
                    MemoryServiceBlockingStub::sessionContext),
            memory(
                    "session_archive",
                    SessionArchiveRequest.getDefaultInstance(),
                    MemoryServiceBlockingStub::sessionArchive),
            memory(
                    "session_append",
                    SessionAppendRequest.getDefaultInstance(),
                    MemoryServiceBlockingStub::sessionAppend),
            memory("list_agents", ListAgentsRequest.getDefaultInstance(), MemoryServiceBlockingStub::listAgents),
            memory("list_files", ListFilesRequest.getDefaultInstance(), MemoryServiceBlockingStub::listFiles),
            entries("remember", RememberRequest.getDefaultInstance(), EntryServiceBlockingStub::remember),
            entries("recall_entries", RecallRequest.getDefaultInstance(), EntryServiceBlockingStub::recall),
            entries("forget_entry", ForgetRequest.getDefaultInstance(), EntryServiceBlockingStub::forget),
            entries("list_entries", ListEntriesRequest.getDefaultInstance(), EntryServiceBlockingStub::listEntries),
            entries(
                    "suggest_capture",
                    SuggestCaptureRequest.getDefaultInstance(),
                    EntryServiceBlockingStub::suggestCapture),
            entries("recall_block", RecallBlockRequest.getDefaultInstance(), EntryServiceBlockingStub::recallBlock));

    private Methods() {}

    /** Makes a unary call. */
    static Message call(MemorydClient client, String method, String json, Optional<Long> timeoutMs)
            throws InvalidProtocolBufferException {
        Unary<?> unary = UNARY.get(method);
        if (unary == null) {
            throw new IllegalArgumentException("no such method: " + method);
        }
        return unary.call(client, json, timeoutMs);
    }

    /** Opens a stream. */
    static EventStream<? extends Message> open(
            MemorydClient client, String method, String json, Optional<Long> timeoutMs)
            throws InvalidProtocolBufferException {
        return switch (method) {
            case "sync" -> {
                SyncRequest request = parsed(SyncRequest.getDefaultInstance(), json);
                yield timeoutMs
                        .map(ms -> EventStream.of(() -> limited(client, ms).sync(request)))
                        .orElseGet(() -> client.sync(request));
            }
            case "watch" -> {
                WatchIndexRequest request = parsed(WatchIndexRequest.getDefaultInstance(), json);
                yield timeoutMs
                        .map(ms -> EventStream.of(() -> limited(client, ms).watchIndex(request)))
                        .orElseGet(() -> client.watch(request));
            }
            default -> throw new IllegalArgumentException("no such stream: " + method);
        };
    }

    private static MemoryServiceBlockingStub limited(MemorydClient client, long ms) {
        return client.memory().withDeadlineAfter(ms, TimeUnit.MILLISECONDS);
    }

    private static <Q extends Message> Map.Entry<String, Unary<?>> memory(
            String name, Q empty, BiFunction<MemoryServiceBlockingStub, Q, Message> method) {
        return Map.entry(
                name,
                new Unary<>(
                        empty,
                        (client, request, ms) -> method.apply(
                                ms.map(each -> limited(client, each)).orElseGet(client::memory), request)));
    }

    private static <Q extends Message> Map.Entry<String, Unary<?>> entries(
            String name, Q empty, BiFunction<EntryServiceBlockingStub, Q, Message> method) {
        return Map.entry(name, new Unary<>(empty, (client, request, ms) -> {
            EntryServiceBlockingStub stub = client.entries();
            return method.apply(
                    ms.map(each -> stub.withDeadlineAfter(each, TimeUnit.MILLISECONDS))
                            .orElse(stub),
                    request);
        }));
    }

    // A message that is built from a builder has the builder's type.
    @SuppressWarnings("unchecked")
    private static <Q extends Message> Q parsed(Q empty, String json) throws InvalidProtocolBufferException {
        Message.Builder builder = empty.newBuilderForType();
        JsonFormat.parser().merge(json, builder);
        return (Q) builder.build();
    }

    private interface Caller<Q> {
        Message call(MemorydClient client, Q request, Optional<Long> timeoutMs);
    }

    private record Unary<Q extends Message>(Q empty, Caller<Q> caller) {
        Message call(MemorydClient client, String json, Optional<Long> timeoutMs)
                throws InvalidProtocolBufferException {
            Q request = parsed(empty, json);
            return Memoryd.typed(() -> caller.call(client, request, timeoutMs));
        }
    }
}
