package io.memoryd.client;

import io.grpc.ManagedChannel;
import io.grpc.SynchronizationContext;
import io.grpc.SynchronizationContext.ScheduledHandle;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Makes a channel reconnect soon after a connection failed: after a tenth of a second, then with doubled delays of at
 * most a quarter of a second. gRPC for Java starts with one second, increases this to two minutes, and has no setting
 * for it. All methods are called in the synchronization context of the channel.
 */
final class Redial {
    private static final long FIRST_MS = 100;
    private static final long MOST_MS = 250;
    /** A failure this long after the one before does not belong to the same outage. */
    private static final long CALM_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final SynchronizationContext context;
    private final ScheduledExecutorService timer;
    private final Supplier<ManagedChannel> channel;
    private ScheduledHandle waiting;
    private boolean resetting;
    private long pause = FIRST_MS;
    private long failed = System.nanoTime() - CALM_NANOS;

    Redial(SynchronizationContext context, ScheduledExecutorService timer, Supplier<ManagedChannel> channel) {
        this.context = context;
        this.timer = timer;
        this.channel = channel;
    }

    /** Returns whether the refresh that gRPC requests is part of a reset, and not the report of a failure. */
    boolean resetting() {
        return resetting;
    }

    /** Schedules an attempt to connect to all addresses that are not connected, unless one is scheduled. */
    void failed() {
        long now = System.nanoTime();
        if (now - failed > CALM_NANOS) {
            pause = FIRST_MS;
        }
        failed = now;
        if (waiting == null || !waiting.isPending()) {
            waiting = context.schedule(this::dial, pause, TimeUnit.MILLISECONDS, timer);
            pause = Math.min(2 * pause, MOST_MS);
        }
    }

    void stop() {
        if (waiting != null) {
            waiting.cancel();
        }
    }

    private void dial() {
        // The tasks of the context run in order: this one, the reset, and the end of the reset.
        resetting = true;
        channel.get().resetConnectBackoff();
        context.execute(() -> resetting = false);
    }
}
