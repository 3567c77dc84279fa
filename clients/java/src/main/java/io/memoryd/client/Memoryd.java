package io.memoryd.client;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Supplier;

/** Where a program begins: connects to a daemon. */
public final class Memoryd {
    private Memoryd() {}

    /**
     * Connects to the daemon that the environment and the state directory tell of.
     *
     * @return a client; its first call makes the connection
     * @throws SettingsException where what was found cannot be used
     */
    public static MemorydClient connect() {
        return builder().connect();
    }

    /**
     * Connects to the daemon at an address.
     *
     * @param address {@code unix:PATH}, {@code HOST:PORT} or {@code [::1]:PORT}
     * @return a client; its first call makes the connection
     * @throws SettingsException where the address, or what was found besides, cannot be used
     */
    public static MemorydClient connect(String address) {
        return builder().address(address).connect();
    }

    /**
     * Starts to describe a connection.
     *
     * @return a builder that leaves everything to be found
     */
    public static Builder builder() {
        return new Builder(Environment.ofProcess());
    }

    /**
     * Makes a call whose failure is thrown as {@link MemorydException}.
     *
     * @param <T> what the call returns
     * @param call a call of a blocking stub
     * @return what the call returned
     * @throws MemorydException where its status is not OK
     */
    public static <T> T typed(Supplier<T> call) {
        try {
            return call.get();
        } catch (io.grpc.StatusRuntimeException failure) {
            throw MemorydException.from(failure);
        }
    }

    /** A connection that is being described. What is not given is looked for when it is made. */
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
         * Names the daemon's address.
         *
         * @param address {@code unix:PATH}, {@code HOST:PORT} or {@code [::1]:PORT}
         * @return this builder
         */
        public Builder address(String address) {
            this.address = Optional.of(address);
            return this;
        }

        /**
         * Names the bearer token. None is sent over a Unix socket, and a blank one is none.
         *
         * @param token the token
         * @return this builder
         */
        public Builder token(String token) {
            this.token = Optional.of(token);
            return this;
        }

        /**
         * Speaks TLS; a Unix socket needs none, and gets none.
         *
         * @param tls whom to trust, and who we are
         * @return this builder
         */
        public Builder tls(Tls tls) {
            this.tls = Optional.of(tls);
            return this;
        }

        /**
         * Replaces the documented deadline of every call that has one; streams still have none.
         *
         * @param timeout more than zero
         * @return this builder
         */
        public Builder timeout(Duration timeout) {
            this.timeout = Optional.of(positive(timeout, "timeout"));
            return this;
        }

        /**
         * Pings the daemon, also without a call under way, so that a connection that broke silently is found out.
         *
         * @param interval ten seconds is the least that the daemon allows, and that is sent
         * @return this builder
         */
        public Builder keepAlive(Duration interval) {
            this.keepAlive = Optional.of(positive(interval, "keepalive interval"));
            return this;
        }

        /**
         * Makes the client.
         *
         * @return a client; its first call makes the connection
         * @throws SettingsException where what was given or found cannot be used: the message says what and why
         */
        public MemorydClient connect() {
            Endpoint endpoint = new Discovery(environment).endpoint(address, token, tls);
            return new MemorydClient(
                    endpoint.address().toString(),
                    Channels.open(endpoint, keepAlive),
                    Interceptors.of(endpoint.address(), timeout, endpoint.token()));
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
