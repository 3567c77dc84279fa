package io.memoryd.client;

import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Makes a channel reconnect soon after its connection failed: after a tenth of a second, then with doubled delays of at
 * most a quarter of a second. gRPC for Java starts with one second, increases this to two minutes, and has no setting
 * for it.
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

    /** Watches a channel until it is shut down. */
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
            // The state may not change while the channel reconnects, and then the next failure causes no notification.
            dialLater();
        }
    }
}
