package io.memoryd.client;

import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/** The environment variables and the user of a process. */
record Environment(Map<String, String> variables, Path home) {
    static Environment ofProcess() {
        return of(System.getenv());
    }

    /** The home directory is {@code HOME}, which Java's {@code user.home} ignores. */
    static Environment of(Map<String, String> variables) {
        String home = variables.getOrDefault("HOME", "");
        return new Environment(variables, Path.of(home.isBlank() ? System.getProperty("user.home") : home));
    }

    /** A blank variable counts as not set. */
    Optional<String> text(String name) {
        return Optional.ofNullable(variables.get(name)).map(String::strip).filter(value -> !value.isEmpty());
    }

    /** Returns the value of a boolean variable; other values are refused. */
    Optional<Boolean> flag(String name) {
        return text(name).map(value -> switch (value.toLowerCase(Locale.ROOT)) {
            case "1", "true", "yes", "on" -> true;
            case "0", "false", "no", "off" -> false;
            default -> throw new SettingsException(name + " is \"" + value + "\"; write 1 for yes or 0 for no");
        });
    }

    Optional<Path> path(String name) {
        return text(name).map(this::expand);
    }

    /** Returns the path in a variable of OpenClaw, for which "undefined" and "null" count as not set. */
    Optional<Path> openclawPath(String name, Path home) {
        return text(name)
                .filter(text -> !text.equals("undefined") && !text.equals("null"))
                .map(text -> expand(text, home));
    }

    /** Expands a leading {@code ~} to the home directory. */
    Path expand(String path) {
        return expand(path, home);
    }

    private static Path expand(String path, Path home) {
        if (path.equals("~")) {
            return home;
        }
        return path.startsWith("~/") ? home.resolve(path.substring(2)) : Path.of(path);
    }
}
