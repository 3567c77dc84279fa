package io.memoryd.client;

import com.google.gson.Gson;
import com.google.gson.reflect.TypeToken;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.ManagedChannelRegistry;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/** Creates channels with the retry policy of all clients, which reconnect soon after a connection was lost. */
final class Channels {
    private static final String POLICY = "service_config.json";

    private Channels() {}

    static ManagedChannel open(Endpoint endpoint, Optional<Duration> keepAlive) {
        return open(endpoint, keepAlive, InetAddress::getAllByName);
    }

    static ManagedChannel open(Endpoint endpoint, Optional<Duration> keepAlive, AddressResolver.Lookup lookup) {
        AddressResolver.Client client = new AddressResolver.Client(endpoint.addresses(), lookup);
        ManagedChannelBuilder<?> builder = builder(endpoint)
                // Proxies in the environment are for web addresses, not for the daemon.
                .proxyDetector(address -> null)
                .setNameResolverArg(AddressResolver.CLIENT, client)
                .disableServiceConfigLookUp()
                .defaultServiceConfig(policy())
                .enableRetry();
        keepAlive.ifPresent(interval -> builder.keepAliveTime(interval.toMillis(), TimeUnit.MILLISECONDS)
                .keepAliveWithoutCalls(true));
        ManagedChannel channel = builder.build();
        client.use(channel);
        return channel;
    }

    private static ManagedChannelBuilder<?> builder(Endpoint endpoint) {
        if (endpoint.addresses().socket().isPresent()) {
            return UnixSockets.builder(endpoint.addresses());
        }
        try {
            ManagedChannelBuilder<?> builder =
                    Grpc.newChannelBuilder(AddressResolver.target(endpoint.addresses()), credentials(endpoint.tls()));
            endpoint.tls().flatMap(Tls::serverName).ifPresent(builder::overrideAuthority);
            return builder;
        } catch (IllegalArgumentException | ManagedChannelRegistry.ProviderNotFoundException refused) {
            throw new SettingsException(
                    "cannot connect to " + endpoint.addresses() + ": " + refused.getMessage(), refused);
        }
    }

    private static ChannelCredentials credentials(Optional<Tls> tls) {
        return tls.map(Channels::credentials).orElseGet(InsecureChannelCredentials::create);
    }

    private static ChannelCredentials credentials(Tls tls) {
        TlsChannelCredentials.Builder credentials = TlsChannelCredentials.newBuilder();
        try {
            if (tls.caFile().isPresent()) {
                credentials.trustManager(Pem.certificates(tls.caFile().get()));
            }
            if (tls.certFile().isPresent() && tls.keyFile().isPresent()) {
                credentials.keyManager(
                        Pem.certificates(tls.certFile().get()),
                        Pem.key(tls.keyFile().get()));
            }
        } catch (IOException refused) {
            throw new UncheckedIOException(refused);
        }
        return credentials.build();
    }

    private static Map<String, ?> policy() {
        try (var file = new InputStreamReader(Channels.class.getResourceAsStream(POLICY), StandardCharsets.UTF_8)) {
            return new Gson().fromJson(file, new TypeToken<Map<String, ?>>() {}.getType());
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }
}
