package io.memoryd.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A call that did not end with OK, with everything that its status says. */
public final class MemorydException extends RuntimeException {
    private final Status.Code code;
    private final StatusDetails details;

    private MemorydException(Status status, StatusDetails details, Throwable cause) {
        super(words(status), cause);
        this.code = status.getCode();
        this.details = details;
    }

    /**
     * Returns what a failed call stands for.
     *
     * @param failure what a stub threw, or a future that wraps it
     * @return the failure with its details; those that cannot be read are left out. Code UNKNOWN where no status is to
     *     be found in it
     */
    public static MemorydException from(Throwable failure) {
        for (Throwable each = failure; each != null; each = each.getCause()) {
            if (each instanceof MemorydException typed) {
                return typed;
            }
            if (each instanceof StatusRuntimeException status) {
                return of(status.getStatus(), status.getTrailers(), failure);
            }
            if (each instanceof StatusException status) {
                return of(status.getStatus(), status.getTrailers(), failure);
            }
        }
        return of(Status.UNKNOWN.withDescription(String.valueOf(failure)), null, failure);
    }

    private static MemorydException of(Status status, Metadata trailers, Throwable cause) {
        return new MemorydException(status, StatusDetails.of(trailers), cause);
    }

    /** gRPC's own words for a connection that failed are "io exception"; what failed stands behind them, innermost. */
    static String words(Status status) {
        String told = Optional.ofNullable(status.getDescription()).orElse("");
        String behind = null;
        for (Throwable each = status.getCause(); each != null; each = each.getCause()) {
            behind = each.getMessage() == null ? behind : each.getMessage();
        }
        return behind == null || told.contains(behind) ? told : told + ": " + behind;
    }

    /**
     * Tells the status code.
     *
     * @return gRPC's code
     */
    public Status.Code code() {
        return code;
    }

    /**
     * Tells the reason.
     *
     * @return the name of an {@link io.memoryd.v1.ErrorReason} without its prefix, for example {@code "INDEX_BUSY"};
     *     empty for a status that gRPC made itself, such as of a daemon that does not answer
     */
    public String reason() {
        return details.reason();
    }

    /**
     * Tells the values that the message speaks of.
     *
     * @return values by name, unmodifiable
     */
    public Map<String, String> metadata() {
        return details.metadata();
    }

    /**
     * Tells every bad field of a request that was INVALID_REQUEST.
     *
     * @return unmodifiable, in the daemon's order
     */
    public List<Violation> violations() {
        return details.violations();
    }

    /**
     * Tells when trying again helps.
     *
     * @return how long to wait before; empty where trying again does not help
     */
    public Optional<Duration> retryAfter() {
        return details.retryAfter();
    }

    /**
     * Tells what happened in a line.
     *
     * @return reason, or code where there is none, and message
     */
    @Override
    public String toString() {
        return MemorydException.class.getName() + ": " + (reason().isEmpty() ? code : reason()) + ": " + getMessage();
    }

    /**
     * One thing wrong with one field of the request.
     *
     * @param field the field's name in the contract
     * @param description what is wrong with it
     */
    public record Violation(String field, String description) {}
}
