package io.memoryd.client;

import io.grpc.Context;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Supplier;

/**
 * The events of a streaming call. One thread may read them; any thread may close the stream.
 *
 * <p>A stream that is not read to its end has to be closed; otherwise its call stays open until the client is closed.
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
     * Opens a stream with a call of a blocking stub, for example {@code EventStream.of(() ->
     * client.memory().withDeadlineAfter(1, MINUTES).sync(request))}.
     *
     * @param <T> the event
     * @param call makes the call; called once
     * @return the events of the call
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
     * @return whether there is a next event; false if the stream has ended with OK
     * @throws MemorydException if the stream failed; with CANCELLED if it was closed
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
     * @throws NoSuchElementException if the stream has ended with OK
     * @throws MemorydException if the stream failed; with CANCELLED if it was closed
     */
    @Override
    public T next() {
        if (!hasNext()) {
            throw new NoSuchElementException("the stream has ended");
        }
        return events.next();
    }

    /**
     * Returns the events that were not read yet.
     *
     * @return this stream
     */
    @Override
    public Iterator<T> iterator() {
        return this;
    }

    /** Cancels the call, even while another thread waits for an event. */
    @Override
    public void close() {
        closed = true;
        context.cancel(null);
    }
}
