package io.memoryd.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;

/**
 * Adds the addresses of the daemon to a status that the client created because a connection failed; gRPC's message does
 * not contain them.
 */
final class Unreachable implements ClientInterceptor {
    private final Addresses addresses;

    Unreachable(Addresses addresses) {
        this.addresses = addresses;
    }

    @Override
    public <Q, R> ClientCall<Q, R> interceptCall(MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
        return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
            @Override
            public void start(Listener<R> listener, Metadata headers) {
                super.start(named(listener), headers);
            }
        };
    }

    private <R> ClientCall.Listener<R> named(ClientCall.Listener<R> listener) {
        return new SimpleForwardingClientCallListener<>(listener) {
            @Override
            public void onClose(Status status, Metadata trailers) {
                super.onClose(named(status), trailers);
            }
        };
    }

    /** A status sent by the daemon has no cause. */
    private Status named(Status status) {
        if (status.getCode() != Status.Code.UNAVAILABLE || status.getCause() == null) {
            return status;
        }
        return status.withDescription("the connection to " + addresses + " failed: " + MemorydException.words(status));
    }
}
