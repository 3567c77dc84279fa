package io.memoryd.client;

import java.util.Optional;

/** A daemon and how to speak to it. Token and TLS are for TCP alone. */
record Endpoint(Address address, Optional<String> token, Optional<Tls> tls) {}
