package io.memoryd.client;

import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;

/** The variables of a process, and whose it is. */
record Environment(Map<String, String> variables, Path home) {
    static Environment ofProcess() {
        return of(System.getenv());
    }

    /** The home directory is {@code HOME}, which Java's own {@code user.home} does not heed. */
    static Environment of(Map<String, String> variables) {
        String home = variables.getOrDefault("HOME", "");
        return new Environment(variables, Path.of(home.isBlank() ? System.getProperty("user.home") : home));
    }

    /** A variable that is blank is not set. */
    Optional<String> text(String name) {
        return Optional.ofNullable(variables.get(name)).map(String::strip).filter(value -> !value.isEmpty());
    }

    Optional<Path> path(String name) {
        return text(name).map(this::expand);
    }

    /** A path whose leading {@code ~} is the home directory. */
    Path expand(String path) {
        if (path.equals("~")) {
            return home;
        }
        return path.startsWith("~/") ? home.resolve(path.substring(2)) : Path.of(path);
    }
}
