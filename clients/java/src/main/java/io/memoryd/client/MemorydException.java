package io.memoryd.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A call whose status is not OK, with all details of the status. */
public final class MemorydException extends RuntimeException {
    private final Status.Code code;
    private final StatusDetails details;

    private MemorydException(Status status, StatusDetails details, Throwable cause) {
        super(words(status), cause);
        this.code = status.getCode();
        this.details = details;
    }

    /**
     * Returns the exception of a failed call.
     *
     * @param failure the exception that a stub threw, or that wraps it in a future
     * @return the failure with its details; details that cannot be decoded are omitted. The code is UNKNOWN if the
     *     exception contains no status
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

    /** gRPC's message for a failed connection is "io exception"; the reason is the innermost cause. */
    static String words(Status status) {
        String description = Optional.ofNullable(status.getDescription()).orElse("");
        String behind = null;
        for (Throwable each = status.getCause(); each != null; each = each.getCause()) {
            behind = each.getMessage() == null ? behind : each.getMessage();
        }
        return behind == null || description.contains(behind) ? description : description + ": " + behind;
    }

    /**
     * Returns the status code.
     *
     * @return the gRPC code
     */
    public Status.Code code() {
        return code;
    }

    /**
     * Returns the reason.
     *
     * @return the name of an {@link io.memoryd.v1.ErrorReason} without its prefix, for example {@code "INDEX_BUSY"};
     *     empty for a status that gRPC itself created, for example if the daemon is not running
     */
    public String reason() {
        return details.reason();
    }

    /**
     * Returns the values that the message refers to.
     *
     * @return values by name, unmodifiable
     */
    public Map<String, String> metadata() {
        return details.metadata();
    }

    /**
     * Returns the invalid fields of an INVALID_REQUEST.
     *
     * @return unmodifiable, in the daemon's order
     */
    public List<Violation> violations() {
        return details.violations();
    }

    /**
     * Returns the time to wait before a retry.
     *
     * @return the time; empty if a retry does not help
     */
    public Optional<Duration> retryAfter() {
        return details.retryAfter();
    }

    /**
     * Returns a one-line description.
     *
     * @return the reason, or the code if there is no reason, and the message
     */
    @Override
    public String toString() {
        return MemorydException.class.getName() + ": " + (reason().isEmpty() ? code : reason()) + ": " + getMessage();
    }

    /**
     * An invalid field of a request.
     *
     * @param field name of the field
     * @param description why the field is invalid
     */
    public record Violation(String field, String description) {}
}
