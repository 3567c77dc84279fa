package io.memoryd.client;

import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.function.Function;

/** A unary call that is started when its request is known, because its options depend on the request. */
final class CallByRequest<Q, R> extends ClientCall<Q, R> {
    private final Function<Q, ClientCall<Q, R>> opener;
    private Listener<R> listener;
    private Metadata headers;
    private int requested;
    private ClientCall<Q, R> call;
    private boolean cancelled;

    CallByRequest(Function<Q, ClientCall<Q, R>> opener) {
        this.opener = opener;
    }

    @Override
    public synchronized void start(Listener<R> listener, Metadata headers) {
        this.listener = listener;
        this.headers = headers;
    }

    @Override
    public synchronized void request(int messages) {
        if (call == null) {
            requested += messages;
        } else {
            call.request(messages);
        }
    }

    @Override
    public synchronized void sendMessage(Q message) {
        if (cancelled) {
            return;
        }
        call = opener.apply(message);
        call.start(listener, headers);
        call.request(requested);
        call.sendMessage(message);
    }

    @Override
    public synchronized void halfClose() {
        if (!cancelled) {
            call.halfClose();
        }
    }

    @Override
    public void cancel(String message, Throwable cause) {
        Listener<R> notified;
        synchronized (this) {
            if (call != null) {
                call.cancel(message, cause);
                return;
            }
            notified = cancelled ? null : listener;
            cancelled = true;
        }
        if (notified != null) {
            notified.onClose(Status.CANCELLED.withDescription(message).withCause(cause), new Metadata());
        }
    }
}
