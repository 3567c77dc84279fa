package io.memoryd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.protobuf.Message;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Help;
import com.google.rpc.RetryInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import io.memoryd.client.MemorydException.Violation;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;

class MemorydExceptionTest {
    private static final Metadata.Key<byte[]> DETAILS =
            Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
    private static final ErrorInfo INFO = ErrorInfo.newBuilder()
            .setReason("INVALID_REQUEST")
            .setDomain("memoryd")
            .putMetadata("request_id", "r1")
            .build();
    private static final BadRequest BAD = BadRequest.newBuilder()
            .addFieldViolations(violation("query", "must not be blank"))
            .addFieldViolations(violation("max_results", "must be at least 1"))
            .build();

    @Test
    void everythingThatAStatusSaysIsTold() {
        RetryInfo retry = RetryInfo.newBuilder()
                .setRetryDelay(Duration.newBuilder().setSeconds(1).setNanos(500_000_000))
                .build();
        MemorydException error = failure(details(Help.getDefaultInstance(), INFO, BAD, retry));
        assertEquals(Status.Code.INVALID_ARGUMENT, error.code());
        assertEquals("INVALID_REQUEST", error.reason());
        assertEquals("two fields are wrong", error.getMessage());
        assertEquals(Map.of("request_id", "r1"), error.metadata());
        assertEquals(
                List.of(
                        new Violation("query", "must not be blank"),
                        new Violation("max_results", "must be at least 1")),
                error.violations());
        assertEquals(Optional.of(java.time.Duration.ofMillis(1500)), error.retryAfter());
        assertEquals("io.memoryd.client.MemorydException: INVALID_REQUEST: two fields are wrong", error.toString());
    }

    @Test
    void aStatusThatGrpcMadeHasNoReason() {
        MemorydException error = MemorydException.from(Status.UNAVAILABLE.asRuntimeException());
        assertEquals("", error.reason());
        assertEquals("", error.getMessage());
        assertEquals(Map.of(), error.metadata());
        assertEquals(List.of(), error.violations());
        assertEquals(Optional.empty(), error.retryAfter());
        assertEquals("io.memoryd.client.MemorydException: UNAVAILABLE: ", error.toString());
    }

    @Test
    void whatBrokeAConnectionIsTold() {
        Status status = Status.UNAVAILABLE.withDescription("io exception").withCause(new IOException("no such socket"));
        assertEquals(
                "io exception: no such socket",
                MemorydException.from(status.asRuntimeException()).getMessage());
        IOException general = new IOException("general problem", new IOException("not trusted", new IOException()));
        assertEquals(
                "io exception: not trusted",
                MemorydException.from(status.withCause(general).asRuntimeException())
                        .getMessage());
    }

    @Test
    void detailsThatCannotBeReadAreLeftOut() {
        byte[] unreadable = {(byte) 0xff, (byte) 0xff};
        assertEquals("", failure(unreadable).reason());
        Any broken = Any.pack(BAD).toBuilder()
                .setValue(ByteString.copyFrom(unreadable))
                .build();
        byte[] half = com.google.rpc.Status.newBuilder()
                .addDetails(broken)
                .addDetails(Any.pack(INFO))
                .build()
                .toByteArray();
        assertEquals("INVALID_REQUEST", failure(half).reason());
        assertEquals(List.of(), failure(half).violations());
    }

    @Test
    void theStatusIsFoundInsideWhatWrapsIt() {
        var status = Status.NOT_FOUND.withDescription("no such file").asRuntimeException();
        MemorydException error = MemorydException.from(new ExecutionException(status));
        assertEquals(Status.Code.NOT_FOUND, error.code());
        assertSame(error, MemorydException.from(new RuntimeException(error)));
        assertEquals(
                Status.Code.ABORTED,
                MemorydException.from(Status.ABORTED.asException()).code());
        assertEquals(
                Status.Code.UNKNOWN,
                MemorydException.from(new IllegalStateException("x")).code());
    }

    private static MemorydException failure(byte[] details) {
        Metadata trailers = new Metadata();
        trailers.put(DETAILS, details);
        Status status = Status.INVALID_ARGUMENT.withDescription("two fields are wrong");
        return MemorydException.from(status.asRuntimeException(trailers));
    }

    private static byte[] details(Message... details) {
        var status = com.google.rpc.Status.newBuilder();
        for (Message each : details) {
            status.addDetails(Any.pack(each));
        }
        return status.build().toByteArray();
    }

    private static BadRequest.FieldViolation violation(String field, String description) {
        return BadRequest.FieldViolation.newBuilder()
                .setField(field)
                .setDescription(description)
                .build();
    }
}
