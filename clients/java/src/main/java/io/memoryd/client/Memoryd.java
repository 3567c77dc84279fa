package io.memoryd.client;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Supplier;

/** The entry point of the library: connects to a daemon. */
public final class Memoryd {
    private Memoryd() {}

    /**
     * Connects to the daemon that discovery finds by the environment and the state directory.
     *
     * @return a client; its first call opens the connection
     * @throws SettingsException if a value that was found cannot be used
     */
    public static MemorydClient connect() {
        return builder().connect();
    }

    /**
     * Connects to the daemon at an address, or to several replicas.
     *
     * @param address {@code unix:PATH}, {@code HOST:PORT} or {@code [::1]:PORT}; or several TCP addresses, separated by
     *     commas
     * @return a client; its first call opens the connections
     * @throws SettingsException if the address, or a value that was found, cannot be used
     */
    public static MemorydClient connect(String address) {
        return builder().address(address).connect();
    }

    /**
     * Returns a builder for a connection.
     *
     * @return a builder without any values
     */
    public static Builder builder() {
        return new Builder(Environment.ofProcess());
    }

    /**
     * Makes a call and throws its failure as a {@link MemorydException}.
     *
     * @param <T> the result of the call
     * @param call a call of a blocking stub
     * @return the result of the call
     * @throws MemorydException if the status is not OK
     */
    public static <T> T typed(Supplier<T> call) {
        try {
            return call.get();
        } catch (io.grpc.StatusRuntimeException failure) {
            throw MemorydException.from(failure);
        }
    }

    /** A builder of a client. Values that are not set are looked up when the client is created. */
    public static final class Builder {
        private final Environment environment;
        private Optional<String> address = Optional.empty();
        private Optional<String> token = Optional.empty();
        private Optional<Tls> tls = Optional.empty();
        private Optional<Duration> timeout = Optional.empty();
        private Optional<Duration> keepAlive = Optional.empty();

        Builder(Environment environment) {
            this.environment = environment;
        }

        /**
         * Sets the address of the daemon, or the addresses of several replicas. Calls alternate between the replicas
         * that are connected.
         *
         * @param address {@code unix:PATH}, {@code HOST:PORT} or {@code [::1]:PORT}; or several TCP addresses,
         *     separated by commas
         * @return this builder
         */
        public Builder address(String address) {
            this.address = Optional.of(address);
            return this;
        }

        /**
         * Sets the bearer token. It is not sent over a Unix socket. A blank token means none.
         *
         * @param token the token
         * @return this builder
         */
        public Builder token(String token) {
            this.token = Optional.of(token);
            return this;
        }

        /**
         * Enables TLS over TCP; ignored for a Unix socket.
         *
         * @param tls the trusted certificates and the client certificate
         * @return this builder
         */
        public Builder tls(Tls tls) {
            this.tls = Optional.of(tls);
            return this;
        }

        /**
         * Replaces the default deadline of every call that has one; streams have none.
         *
         * @param timeout more than zero
         * @return this builder
         */
        public Builder timeout(Duration timeout) {
            this.timeout = Optional.of(positive(timeout, "timeout"));
            return this;
        }

        /**
         * Sends keepalive pings, also when no call is active, to detect broken connections.
         *
         * @param interval at least ten seconds; smaller values count as ten seconds
         * @return this builder
         */
        public Builder keepAlive(Duration interval) {
            this.keepAlive = Optional.of(positive(interval, "keepalive interval"));
            return this;
        }

        /**
         * Creates the client.
         *
         * @return a client; its first call opens the connection
         * @throws SettingsException if a given or found value cannot be used; the message names it and the reason
         */
        public MemorydClient connect() {
            Endpoint endpoint = new Discovery(environment).endpoint(address, token, tls);
            return new MemorydClient(
                    endpoint.addresses().toString(),
                    Channels.open(endpoint, keepAlive),
                    Interceptors.of(endpoint.addresses(), timeout, endpoint.token()));
        }

        private static Duration positive(Duration duration, String name) {
            Objects.requireNonNull(duration, name);
            if (duration.isZero() || duration.isNegative()) {
                throw new SettingsException("the " + name + " must be more than zero; got " + duration);
            }
            return duration;
        }
    }
}
