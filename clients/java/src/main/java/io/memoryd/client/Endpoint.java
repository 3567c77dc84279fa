package io.memoryd.client;

import java.util.Optional;

/** A daemon or its replicas, with the token and TLS settings for it, which are used for TCP only. */
record Endpoint(Addresses addresses, Optional<String> token, Optional<Tls> tls) {}
