package io.memoryd.client;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The addresses of one client: a Unix socket, or the TCP addresses of one or more replicas.
 *
 * @param list at least one address; without duplicates
 */
record Addresses(List<Address> list) {
    private static final int MOST = 64;

    /**
     * Parses one address, or several TCP addresses that are separated by commas. The path of a socket may contain a
     * comma, so a text that begins with {@code unix:} is one address.
     */
    static Addresses parse(String text, Environment environment) {
        String[] parts = text.split(",", -1);
        if (parts.length == 1 || text.startsWith("unix:")) {
            return of(Address.parse(text, environment));
        }
        if (parts.length > MOST) {
            throw new SettingsException("cannot connect to " + parts.length + " addresses; the maximum is " + MOST);
        }
        List<Address> list = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        for (String part : parts) {
            if (part.isBlank()) {
                throw refusal(text, "an address between the commas is missing");
            }
            Address address = Address.parse(part.strip(), environment);
            if (address.socket().isPresent()) {
                throw refusal(text, "a list can contain only HOST:PORT addresses, not " + address);
            }
            if (!seen.add(address.toString().toLowerCase(Locale.ROOT))) {
                throw refusal(text, "it contains the address " + address + " twice");
            }
            list.add(address);
        }
        return new Addresses(List.copyOf(list));
    }

    static Addresses of(Address address) {
        return new Addresses(List.of(address));
    }

    private static SettingsException refusal(String text, String why) {
        return new SettingsException("cannot connect to \"" + text + "\": " + why);
    }

    Optional<Path> socket() {
        return list.get(0).socket();
    }

    /** Returns the first address that is not on this machine. */
    Optional<Address> remote() {
        return list.stream().filter(address -> !address.loopback()).findFirst();
    }

    /** Returns whether the IP addresses of a host can change. */
    boolean named() {
        return list.stream().anyMatch(Address::named);
    }

    @Override
    public String toString() {
        return list.stream().map(Address::toString).collect(Collectors.joining(", "));
    }
}
