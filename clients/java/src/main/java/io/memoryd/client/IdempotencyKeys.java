package io.memoryd.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.MethodDescriptor;
import io.memoryd.v1.MemoryAppendRequest;
import io.memoryd.v1.RememberRequest;
import java.util.UUID;

/**
 * Gives a random key to what would be written twice if it were tried again. Retries happen below, so that all of one
 * call show the same key.
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

    // Each message is replaced by one of its own kind.
    @SuppressWarnings("unchecked")
    private static <Q> Q keyed(Q message) {
        if (message instanceof MemoryAppendRequest append
                && append.getIdempotencyKey().isEmpty()) {
            return (Q) append.toBuilder().setIdempotencyKey(key()).build();
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
