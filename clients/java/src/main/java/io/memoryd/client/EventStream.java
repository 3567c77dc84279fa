package io.memoryd.client;

import io.grpc.Context;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Supplier;

/**
 * The events of a streaming call, as they come: for one thread to read, and for any to close.
 *
 * <p>A stream that is not read to its end has to be closed, or its call stays open as long as the client.
 *
 * @param <T> the event
 */
public final class EventStream<T> implements Iterator<T>, Iterable<T>, AutoCloseable {
    private final Context.CancellableContext context;
    private final Iterator<T> events;
    private volatile boolean closed;

    private EventStream(Context.CancellableContext context, Iterator<T> events) {
        this.context = context;
        this.events = events;
    }

    /**
     * Opens a stream by a call of a blocking stub, for example {@code EventStream.of(() ->
     * client.memory().withDeadlineAfter(1, MINUTES).sync(request))}.
     *
     * @param <T> the event
     * @param call makes the call, once
     * @return its events
     */
    public static <T> EventStream<T> of(Supplier<Iterator<T>> call) {
        Context.CancellableContext context = Context.current().withCancellation();
        Context previous = context.attach();
        try {
            return new EventStream<>(context, call.get());
        } catch (RuntimeException failure) {
            context.cancel(failure);
            throw failure;
        } finally {
            context.detach(previous);
        }
    }

    /**
     * Waits for the next event.
     *
     * @return whether there is one; false once the stream has ended with OK
     * @throws MemorydException where it ended otherwise, and with CANCELLED once it is closed
     */
    @Override
    public boolean hasNext() {
        try {
            boolean more = !closed && events.hasNext();
            if (closed) {
                throw Status.CANCELLED.withDescription("the stream was closed").asRuntimeException();
            }
            if (!more) {
                context.cancel(null);
            }
            return more;
        } catch (StatusRuntimeException failure) {
            context.cancel(null);
            throw MemorydException.from(failure);
        }
    }

    /**
     * Waits for the next event.
     *
     * @return the event
     * @throws NoSuchElementException once the stream has ended with OK
     * @throws MemorydException where it ended otherwise, and with CANCELLED once it is closed
     */
    @Override
    public T next() {
        if (!hasNext()) {
            throw new NoSuchElementException("the stream has ended");
        }
        return events.next();
    }

    /**
     * Returns the events that have not been read.
     *
     * @return this stream
     */
    @Override
    public Iterator<T> iterator() {
        return this;
    }

    /** Ends the call, also while another thread waits for an event. */
    @Override
    public void close() {
        closed = true;
        context.cancel(null);
    }
}
