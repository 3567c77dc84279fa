package io.memoryd.client;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/** Looks up settings that the caller did not give, in the same places as the memoryd command. */
final class Discovery {
    private final Environment environment;

    Discovery(Environment environment) {
        this.environment = environment;
    }

    /** Returns the endpoint from the given settings, and from discovery for the others. */
    Endpoint endpoint(Optional<String> address, Optional<String> token, Optional<Tls> tls) {
        Addresses found = address.or(() -> environment.text("MEMORYD_ADDRESS"))
                .map(text -> Addresses.parse(text, environment))
                .orElseGet(() -> Addresses.of(noted().orElseGet(this::usual)));
        if (found.socket().isPresent()) {
            return new Endpoint(found, Optional.empty(), Optional.empty());
        }
        Optional<Tls> spoken = tls.or(this::namedTls);
        Optional<String> shown = (token.isPresent() ? token : foundToken(found))
                .map(String::strip)
                .filter(text -> !text.isEmpty());
        shown.ifPresent(Discovery::refuseUnsendable);
        Optional<Address> remote = found.remote();
        if (shown.isPresent() && spoken.isEmpty() && remote.isPresent()) {
            throw new SettingsException("refusing to send the token to " + remote.get()
                    + " in the clear: use TLS (tls(...) or MEMORYD_TLS)");
        }
        return new Endpoint(found, shown, spoken);
    }

    private Path state() {
        Path home =
                environment.openclawPath("OPENCLAW_HOME", environment.home()).orElse(environment.home());
        return environment
                .path("MEMORYD_STATE_DIR")
                .or(() -> environment.openclawPath("OPENCLAW_STATE_DIR", home))
                .or(() -> Stream.of(".openclaw", ".clawdbot", ".moltbot")
                        .map(home::resolve)
                        .filter(Files::exists)
                        .findFirst())
                .orElse(home.resolve(".openclaw"));
    }

    /**
     * Returns the first usable address in the daemon's endpoint file. The file may outlive the daemon and its socket.
     */
    private Optional<Address> noted() {
        return notedAddresses().stream()
                .flatMap(text -> readable(text).stream())
                .filter(address -> address.socket().map(Files::exists).orElse(true))
                .findFirst();
    }

    private List<String> notedAddresses() {
        List<String> addresses = new ArrayList<>();
        try {
            String note = Files.readString(state().resolve("memoryd.endpoint.json"));
            if (JsonParser.parseString(note) instanceof JsonObject object
                    && object.get("addresses") instanceof JsonArray array) {
                for (JsonElement each : array) {
                    addresses.add(each.getAsString());
                }
            }
        } catch (IOException | JsonParseException | IllegalStateException | UnsupportedOperationException none) {
            return addresses;
        }
        return addresses;
    }

    private Optional<Address> readable(String text) {
        try {
            return Optional.of(Address.parse(text, environment));
        } catch (SettingsException unusable) {
            return Optional.empty();
        }
    }

    private Address usual() {
        Path directory = environment
                .path("XDG_RUNTIME_DIR")
                .map(runtime -> runtime.resolve("memoryd"))
                .orElseGet(() -> state().resolve("run"));
        return Address.parse("unix:" + directory.resolve("memoryd.sock"), environment);
    }

    private Optional<String> foundToken(Addresses addresses) {
        Optional<Path> named = environment.path("MEMORYD_TOKEN_FILE");
        if (named.isPresent()) {
            String token = firstToken(named.get())
                    .orElseThrow(() -> new SettingsException("the token file " + named.get() + " contains no token"));
            return Optional.of(token);
        }
        Path own = state().resolve("memoryd.token");
        return addresses.remote().isEmpty() && Files.exists(own) ? firstToken(own) : Optional.empty();
    }

    private static Optional<String> firstToken(Path file) {
        try (Stream<String> lines =
                Files.readString(file, StandardCharsets.UTF_8).lines()) {
            return lines.map(String::strip)
                    .filter(line -> !line.isEmpty() && !line.startsWith("#"))
                    .findFirst();
        } catch (IOException unreadable) {
            throw new SettingsException("cannot read the token file " + file + ": " + why(unreadable), unreadable);
        }
    }

    /** A header can only contain printable ASCII characters. */
    private static void refuseUnsendable(String token) {
        if (!token.chars().allMatch(each -> each > ' ' && each < 0x7f)) {
            throw new SettingsException(
                    "the token contains characters that are not printable ASCII: is it the right file?");
        }
    }

    private Optional<Tls> namedTls() {
        Optional<Path> ca = environment.path("MEMORYD_TLS_CA");
        Optional<Path> cert = environment.path("MEMORYD_TLS_CERT");
        Optional<Path> key = environment.path("MEMORYD_TLS_KEY");
        boolean named = ca.isPresent() || cert.isPresent() || key.isPresent();
        if (!environment.flag("MEMORYD_TLS").orElse(named)) {
            return Optional.empty();
        }
        return Optional.of(new Tls(ca, cert, key, environment.text("MEMORYD_TLS_SERVER_NAME")));
    }

    /** Returns why a file cannot be read. For a missing file, Java's own message is only its path. */
    static String why(IOException error) {
        if (error instanceof NoSuchFileException) {
            return "there is no such file";
        }
        if (error instanceof AccessDeniedException) {
            return "permission denied";
        }
        String reason = error instanceof FileSystemException file ? file.getReason() : error.getMessage();
        return reason != null ? reason : error.getClass().getSimpleName();
    }
}
