package io.memoryd.client;

import java.util.Optional;

/** A daemon, with the token and TLS settings for it, which are used for TCP only. */
record Endpoint(Address address, Optional<String> token, Optional<Tls> tls) {}
