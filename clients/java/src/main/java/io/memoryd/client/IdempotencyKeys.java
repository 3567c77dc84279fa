package io.memoryd.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.MethodDescriptor;
import io.memoryd.v1.MemoryAppendRequest;
import io.memoryd.v1.MemoryMoveRequest;
import io.memoryd.v1.MemoryRestoreRequest;
import io.memoryd.v1.MemoryWriteRequest;
import io.memoryd.v1.RememberRequest;
import java.util.UUID;

/**
 * Sets a random idempotency key for appends, edits and entries that have none. Retries are made below this interceptor,
 * so all attempts of a call have the same key.
 */
final class IdempotencyKeys implements ClientInterceptor {
    @Override
    public <Q, R> ClientCall<Q, R> interceptCall(MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
        return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
            @Override
            public void sendMessage(Q message) {
                super.sendMessage(keyed(message));
            }
        };
    }

    // Each message is replaced by one of the same type.
    @SuppressWarnings("unchecked")
    private static <Q> Q keyed(Q message) {
        if (message instanceof MemoryAppendRequest append
                && append.getIdempotencyKey().isEmpty()) {
            return (Q) append.toBuilder().setIdempotencyKey(key()).build();
        }
        if (message instanceof MemoryWriteRequest write
                && write.getIdempotencyKey().isEmpty()) {
            return (Q) write.toBuilder().setIdempotencyKey(key()).build();
        }
        if (message instanceof MemoryMoveRequest move
                && move.getIdempotencyKey().isEmpty()) {
            return (Q) move.toBuilder().setIdempotencyKey(key()).build();
        }
        if (message instanceof MemoryRestoreRequest restore
                && restore.getIdempotencyKey().isEmpty()) {
            return (Q) restore.toBuilder().setIdempotencyKey(key()).build();
        }
        if (message instanceof RememberRequest remember
                && remember.getIdempotencyKey().isEmpty()) {
            return (Q) remember.toBuilder().setIdempotencyKey(key()).build();
        }
        return message;
    }

    private static String key() {
        return UUID.randomUUID().toString();
    }
}
