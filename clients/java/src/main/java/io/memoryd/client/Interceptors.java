package io.memoryd.client;

import io.grpc.ClientInterceptor;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** The interceptors of every call. */
final class Interceptors {
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    private Interceptors() {}

    static List<ClientInterceptor> of(Addresses addresses, Optional<Duration> timeout, Optional<String> token) {
        List<ClientInterceptor> interceptors =
                new ArrayList<>(List.of(new Unreachable(addresses), new Deadlines(timeout), new IdempotencyKeys()));
        token.ifPresent(text -> {
            Metadata headers = new Metadata();
            headers.put(AUTHORIZATION, "Bearer " + text);
            interceptors.add(MetadataUtils.newAttachHeadersInterceptor(headers));
        });
        return List.copyOf(interceptors);
    }
}
