package io.memoryd.client;

import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Has a channel whose connection failed dial again soon: after a tenth of a second, then twice as long each time, and
 * never longer than a quarter of a second. gRPC for Java begins with a second, goes up to two minutes, and has no
 * setting for it.
 */
final class Redial {
    private static final long FIRST_MS = 100;
    private static final long MOST_MS = 250;

    private final ManagedChannel channel;
    private final AtomicBoolean waiting = new AtomicBoolean();
    private volatile long pause = FIRST_MS;

    private Redial(ManagedChannel channel) {
        this.channel = channel;
    }

    /** Looks after a channel until it is shut down. */
    static void watch(ManagedChannel channel) {
        new Redial(channel).follow();
    }

    private void follow() {
        ConnectivityState state = channel.getState(false);
        if (state == ConnectivityState.SHUTDOWN) {
            return;
        }
        if (state == ConnectivityState.READY) {
            pause = FIRST_MS;
        } else if (state == ConnectivityState.TRANSIENT_FAILURE) {
            dialLater();
        }
        channel.notifyWhenStateChanged(state, this::follow);
    }

    private void dialLater() {
        if (waiting.compareAndSet(false, true)) {
            CompletableFuture.delayedExecutor(pause, TimeUnit.MILLISECONDS).execute(this::dial);
            pause = Math.min(2 * pause, MOST_MS);
        }
    }

    private void dial() {
        waiting.set(false);
        if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
            channel.resetConnectBackoff();
            // The state may stay what it is while the channel dials, and then nobody tells of the next failure.
            dialLater();
        }
    }
}
