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
 * The stubs of one daemon or its replicas. A client is thread-safe; use one client per program.
 *
 * <p>Every unary call has its default deadline, unless the caller sets one with {@code withDeadlineAfter} or with the
 * deadline of an {@link io.grpc.Context}. A call that fails with UNAVAILABLE is retried within its deadline. Appends,
 * edits and entries get an {@code idempotency_key} if they have none, so that retries are safe; {@code SessionAppend}
 * is not retried.
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
     * Returns the address of the daemon.
     *
     * @return the address, as {@code unix:PATH} or {@code HOST:PORT}; several are separated by commas
     */
    public String address() {
        return address;
    }

    /**
     * Returns the channel of the stubs, for other kinds of stubs or other services of the daemon.
     *
     * @return a channel with token, deadlines and retries; it is closed with this client
     */
    public Channel channel() {
        return channel;
    }

    /**
     * Returns the blocking stub of the memory service.
     *
     * @return a stub whose calls throw {@link io.grpc.StatusRuntimeException}; see {@link MemorydException#from}
     */
    public MemoryServiceBlockingStub memory() {
        return MemoryServiceGrpc.newBlockingStub(channel);
    }

    /**
     * Returns the future stub of the memory service.
     *
     * @return a stub; it has no streaming calls
     */
    public MemoryServiceFutureStub memoryFuture() {
        return MemoryServiceGrpc.newFutureStub(channel);
    }

    /**
     * Returns the asynchronous stub of the memory service, with observers.
     *
     * @return a stub
     */
    public MemoryServiceStub memoryAsync() {
        return MemoryServiceGrpc.newStub(channel);
    }

    /**
     * Returns the blocking stub of the entry service.
     *
     * @return a stub whose calls throw {@link io.grpc.StatusRuntimeException}; see {@link MemorydException#from}
     */
    public EntryServiceBlockingStub entries() {
        return EntryServiceGrpc.newBlockingStub(channel);
    }

    /**
     * Returns the future stub of the entry service.
     *
     * @return a stub
     */
    public EntryServiceFutureStub entriesFuture() {
        return EntryServiceGrpc.newFutureStub(channel);
    }

    /**
     * Returns the asynchronous stub of the entry service, with observers.
     *
     * @return a stub
     */
    public EntryServiceStub entriesAsync() {
        return EntryServiceGrpc.newStub(channel);
    }

    /**
     * Starts a sync run, or joins the current one.
     *
     * @param request the agent and the options of the run
     * @return the events of the run; the last one is {@code completed}. Closing the stream does not stop the run,
     *     unless the request says so
     */
    public EventStream<SyncResponse> sync(SyncRequest request) {
        return EventStream.of(() -> memory().sync(request));
    }

    /**
     * Follows the state of an agent's index.
     *
     * @param request the agent
     * @return the current state first, then each change, until the stream is closed
     */
    public EventStream<WatchIndexResponse> watch(WatchIndexRequest request) {
        return EventStream.of(() -> memory().watchIndex(request));
    }

    /** Closes the connections and cancels running calls. Closing again has no effect. */
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
