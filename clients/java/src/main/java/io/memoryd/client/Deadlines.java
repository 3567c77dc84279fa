package io.memoryd.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.Context;
import io.grpc.MethodDescriptor;
import io.memoryd.v1.EntryServiceGrpc;
import io.memoryd.v1.MemoryServiceGrpc;
import io.memoryd.v1.StatusRequest;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/** Sets the default deadline of every unary call for which the caller set no deadline. */
final class Deadlines implements ClientInterceptor {
    private static final MethodDescriptor<?, ?> STATUS = MemoryServiceGrpc.getStatusMethod();
    private static final Duration STATUS_WITH_PROBE = Duration.ofSeconds(10);

    /** Seconds by the full name of the method; streams have no default deadline. */
    static final Map<String, Integer> DOCUMENTED = Map.ofEntries(
            seconds(MemoryServiceGrpc.getMemorySearchMethod(), 5),
            seconds(MemoryServiceGrpc.getExplainMissMethod(), 10),
            seconds(MemoryServiceGrpc.getMemoryRecallMethod(), 2),
            seconds(MemoryServiceGrpc.getMemoryGetMethod(), 2),
            seconds(STATUS, 2),
            seconds(MemoryServiceGrpc.getFlushDecisionMethod(), 1),
            seconds(MemoryServiceGrpc.getMemoryAppendMethod(), 5),
            seconds(MemoryServiceGrpc.getMemoryWriteMethod(), 5),
            seconds(MemoryServiceGrpc.getMemoryMoveMethod(), 5),
            seconds(MemoryServiceGrpc.getMemoryHistoryMethod(), 5),
            seconds(MemoryServiceGrpc.getMemoryRestoreMethod(), 5),
            seconds(MemoryServiceGrpc.getMemoryForgetMethod(), 10),
            seconds(MemoryServiceGrpc.getSessionContextMethod(), 2),
            seconds(MemoryServiceGrpc.getSessionArchiveMethod(), 10),
            seconds(MemoryServiceGrpc.getSessionAppendMethod(), 5),
            seconds(MemoryServiceGrpc.getListAgentsMethod(), 2),
            seconds(MemoryServiceGrpc.getListFilesMethod(), 2),
            seconds(EntryServiceGrpc.getRememberMethod(), 10),
            seconds(EntryServiceGrpc.getRecallMethod(), 5),
            seconds(EntryServiceGrpc.getForgetMethod(), 5),
            seconds(EntryServiceGrpc.getListEntriesMethod(), 5),
            seconds(EntryServiceGrpc.getSuggestCaptureMethod(), 1),
            seconds(EntryServiceGrpc.getRecallBlockMethod(), 5));

    private final Optional<Duration> timeout;

    /** {@code timeout} replaces the default deadlines. */
    Deadlines(Optional<Duration> timeout) {
        this.timeout = timeout;
    }

    @Override
    public <Q, R> ClientCall<Q, R> interceptCall(MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
        Integer documented = DOCUMENTED.get(method.getFullMethodName());
        boolean named = options.getDeadline() != null || Context.current().getDeadline() != null;
        if (documented == null || named) {
            return next.newCall(method, options);
        }
        if (method.getFullMethodName().equals(STATUS.getFullMethodName())) {
            return new CallByRequest<>(request ->
                    next.newCall(method, within(options, probes(request) ? STATUS_WITH_PROBE : of(documented))));
        }
        return next.newCall(method, within(options, of(documented)));
    }

    private CallOptions within(CallOptions options, Duration documented) {
        return options.withDeadlineAfter(timeout.orElse(documented).toNanos(), TimeUnit.NANOSECONDS);
    }

    private static Duration of(int seconds) {
        return Duration.ofSeconds(seconds);
    }

    private static boolean probes(Object request) {
        return request instanceof StatusRequest status && status.getProbe();
    }

    private static Map.Entry<String, Integer> seconds(MethodDescriptor<?, ?> method, int seconds) {
        return Map.entry(method.getFullMethodName(), seconds);
    }
}
