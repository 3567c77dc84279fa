package io.memoryd.client;

import com.google.gson.Gson;
import com.google.gson.reflect.TypeToken;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.TlsChannelCredentials;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/** Makes connections that retry as all clients do, and are made anew soon after they were lost. */
final class Channels {
    private static final String POLICY = "service_config.json";

    private Channels() {}

    static ManagedChannel open(Endpoint endpoint, Optional<Duration> keepAlive) {
        ManagedChannelBuilder<?> builder = builder(endpoint)
                // A proxy from the environment is for the web, not for a daemon.
                .proxyDetector(address -> null)
                .disableServiceConfigLookUp()
                .defaultServiceConfig(policy())
                .enableRetry();
        keepAlive.ifPresent(interval -> builder.keepAliveTime(interval.toMillis(), TimeUnit.MILLISECONDS)
                .keepAliveWithoutCalls(true));
        ManagedChannel channel = builder.build();
        Redial.watch(channel);
        return channel;
    }

    private static ManagedChannelBuilder<?> builder(Endpoint endpoint) {
        if (endpoint.address().socket().isPresent()) {
            return UnixSockets.builder(endpoint.address());
        }
        try {
            ManagedChannelBuilder<?> builder =
                    Grpc.newChannelBuilder(endpoint.address().target(), credentials(endpoint.tls()));
            endpoint.tls().flatMap(Tls::serverName).ifPresent(builder::overrideAuthority);
            return builder;
        } catch (IllegalArgumentException refused) {
            throw new SettingsException("cannot connect to " + endpoint.address() + ": " + root(refused), refused);
        }
    }

    private static ChannelCredentials credentials(Optional<Tls> tls) {
        return tls.map(Channels::credentials).orElseGet(InsecureChannelCredentials::create);
    }

    private static ChannelCredentials credentials(Tls tls) {
        TlsChannelCredentials.Builder credentials = TlsChannelCredentials.newBuilder();
        try {
            if (tls.caFile().isPresent()) {
                credentials.trustManager(pem(tls.caFile().get(), "CERTIFICATE"));
            }
            if (tls.certFile().isPresent() && tls.keyFile().isPresent()) {
                credentials.keyManager(
                        pem(tls.certFile().get(), "CERTIFICATE"),
                        pem(tls.keyFile().get(), "PRIVATE KEY"));
            }
        } catch (IOException refused) {
            throw new UncheckedIOException(refused);
        }
        return credentials.build();
    }

    private static ByteArrayInputStream pem(Path file, String kind) {
        String text;
        try {
            text = Files.readString(file, StandardCharsets.ISO_8859_1);
        } catch (IOException unreadable) {
            throw new SettingsException("cannot read " + file + ": " + Discovery.why(unreadable), unreadable);
        }
        if (!text.contains("-----BEGIN " + kind + "-----")) {
            String advice = kind.equals("PRIVATE KEY")
                    ? "; gRPC for Java reads PKCS#8 alone: openssl pkcs8 -topk8 -nocrypt -in " + file
                            + " makes it of others"
                    : "";
            throw new SettingsException(file + " holds no PEM \"BEGIN " + kind + "\"" + advice);
        }
        return new ByteArrayInputStream(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    private static Map<String, ?> policy() {
        try (var file = new InputStreamReader(Channels.class.getResourceAsStream(POLICY), StandardCharsets.UTF_8)) {
            return new Gson().fromJson(file, new TypeToken<Map<String, ?>>() {}.getType());
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }

    private static String root(Throwable error) {
        Throwable root = error;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        return String.valueOf(root.getMessage());
    }
}
