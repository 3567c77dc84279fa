package io.memoryd.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import io.grpc.Metadata;
import io.memoryd.client.MemorydException.Violation;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The details in the trailing metadata of a failed call, in addition to code and message. */
record StatusDetails(
        String reason, Map<String, String> metadata, List<Violation> violations, Optional<Duration> retryAfter) {
    private static final Metadata.Key<byte[]> KEY =
            Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
    private static final StatusDetails NONE = new StatusDetails("", Map.of(), List.of(), Optional.empty());

    /** Reads the details of {@code trailers}, which may be null; details that cannot be decoded are omitted. */
    static StatusDetails of(Metadata trailers) {
        byte[] raw = trailers == null ? null : trailers.get(KEY);
        if (raw == null) {
            return NONE;
        }
        StatusDetails read = NONE;
        try {
            for (Any detail : Status.parseFrom(raw).getDetailsList()) {
                read = read.with(detail);
            }
        } catch (InvalidProtocolBufferException unreadable) {
            return NONE;
        }
        return read;
    }

    private StatusDetails with(Any detail) {
        try {
            if (detail.is(ErrorInfo.class)) {
                ErrorInfo info = detail.unpack(ErrorInfo.class);
                return new StatusDetails(info.getReason(), Map.copyOf(info.getMetadataMap()), violations, retryAfter);
            }
            if (detail.is(BadRequest.class)) {
                return new StatusDetails(reason, metadata, violations(detail.unpack(BadRequest.class)), retryAfter);
            }
            if (detail.is(RetryInfo.class)) {
                var delay = detail.unpack(RetryInfo.class).getRetryDelay();
                Duration wait = Duration.ofSeconds(delay.getSeconds(), delay.getNanos());
                return new StatusDetails(reason, metadata, violations, Optional.of(wait));
            }
        } catch (InvalidProtocolBufferException unreadable) {
            return this;
        }
        return this;
    }

    private static List<Violation> violations(BadRequest request) {
        return request.getFieldViolationsList().stream()
                .map(each -> new Violation(each.getField(), each.getDescription()))
                .toList();
    }
}
