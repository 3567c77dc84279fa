package io.memoryd.client;

import io.grpc.Channel;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.memoryd.v1.EntryServiceGrpc;
import io.memoryd.v1.EntryServiceGrpc.EntryServiceBlockingStub;
import io.memoryd.v1.EntryServiceGrpc.EntryServiceFutureStub;
import io.memoryd.v1.EntryServiceGrpc.EntryServiceStub;
import io.memoryd.v1.MemoryServiceGrpc;
import io.memoryd.v1.MemoryServiceGrpc.MemoryServiceBlockingStub;
import io.memoryd.v1.MemoryServiceGrpc.MemoryServiceFutureStub;
import io.memoryd.v1.MemoryServiceGrpc.MemoryServiceStub;
import io.memoryd.v1.SyncRequest;
import io.memoryd.v1.SyncResponse;
import io.memoryd.v1.WatchIndexRequest;
import io.memoryd.v1.WatchIndexResponse;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The stubs of one daemon, ready to be called. May be shared by threads, and is meant to be: one for a program.
 *
 * <p>Every unary call has the deadline that the contract documents, unless its caller names one, by
 * {@code withDeadlineAfter} or by a {@link io.grpc.Context} that has one. A call that ends UNAVAILABLE is tried again
 * within it, and appends and entries get an {@code idempotency_key} where they have none, so that this is safe.
 */
public final class MemorydClient implements AutoCloseable {
    private static final long CLOSING_SECONDS = 5;

    private final String address;
    private final ManagedChannel connection;
    private final Channel channel;

    MemorydClient(String address, ManagedChannel connection, List<ClientInterceptor> interceptors) {
        this.address = address;
        this.connection = connection;
        this.channel = ClientInterceptors.interceptForward(connection, interceptors);
    }

    /**
     * Tells which daemon is called.
     *
     * @return its address, as {@code unix:PATH} or {@code HOST:PORT}
     */
    public String address() {
        return address;
    }

    /**
     * Returns what the stubs call through, for one of another kind or of another service of the daemon.
     *
     * @return a channel with token, deadlines and retries; it ends with this client
     */
    public Channel channel() {
        return channel;
    }

    /**
     * Returns the memory service, with calls that wait for their answer.
     *
     * @return a stub whose calls throw {@link io.grpc.StatusRuntimeException}; see {@link MemorydException#from}
     */
    public MemoryServiceBlockingStub memory() {
        return MemoryServiceGrpc.newBlockingStub(channel);
    }

    /**
     * Returns the memory service, with calls that answer with a future.
     *
     * @return a stub; it has no streams
     */
    public MemoryServiceFutureStub memoryFuture() {
        return MemoryServiceGrpc.newFutureStub(channel);
    }

    /**
     * Returns the memory service, with calls that tell an observer.
     *
     * @return a stub
     */
    public MemoryServiceStub memoryAsync() {
        return MemoryServiceGrpc.newStub(channel);
    }

    /**
     * Returns the service of entries, with calls that wait for their answer.
     *
     * @return a stub whose calls throw {@link io.grpc.StatusRuntimeException}; see {@link MemorydException#from}
     */
    public EntryServiceBlockingStub entries() {
        return EntryServiceGrpc.newBlockingStub(channel);
    }

    /**
     * Returns the service of entries, with calls that answer with a future.
     *
     * @return a stub
     */
    public EntryServiceFutureStub entriesFuture() {
        return EntryServiceGrpc.newFutureStub(channel);
    }

    /**
     * Returns the service of entries, with calls that tell an observer.
     *
     * @return a stub
     */
    public EntryServiceStub entriesAsync() {
        return EntryServiceGrpc.newStub(channel);
    }

    /**
     * Starts a sync run, or joins the one under way.
     *
     * @param request which agent's, and how
     * @return its events; the last one is {@code completed}. Closing it leaves the run alone, unless the request says
     *     otherwise
     */
    public EventStream<SyncResponse> sync(SyncRequest request) {
        return EventStream.of(() -> memory().sync(request));
    }

    /**
     * Follows an agent's index.
     *
     * @param request which agent's
     * @return its state at once, and again after each change, until the stream is closed
     */
    public EventStream<WatchIndexResponse> watch(WatchIndexRequest request) {
        return EventStream.of(() -> memory().watchIndex(request));
    }

    /** Closes the connection. Calls under way end as cancelled; closing again does nothing. */
    @Override
    public void close() {
        connection.shutdownNow();
        try {
            connection.awaitTermination(CLOSING_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
