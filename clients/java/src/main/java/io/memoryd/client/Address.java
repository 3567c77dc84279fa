package io.memoryd.client;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The address of a daemon: a Unix socket, or a host and a port.
 *
 * @param socket absolute path; empty for TCP
 * @param host without brackets; empty for a socket
 */
record Address(Optional<Path> socket, String host, int port) {
    private static final String UNIX = "unix:";
    private static final Pattern TCP = Pattern.compile("(\\[[0-9a-fA-F:.%\\w]+]|[^\\[\\]:/\\s]*):(\\d{1,5})");
    private static final Pattern NUMERIC = Pattern.compile("[0-9.]+|.*:.*");
    private static final int LAST_PORT = 65_535;
    /** {@code sockaddr_un} holds 108 bytes, including the final NUL. */
    private static final int MOST_SOCKET_PATH_BYTES = 107;

    /** Parses {@code unix:PATH}, {@code HOST:PORT} or {@code [::1]:PORT}. */
    static Address parse(String text, Environment environment) {
        if (text.startsWith(UNIX)) {
            return socket(text, environment);
        }
        Matcher tcp = TCP.matcher(text);
        if (!tcp.matches() || Integer.parseInt(tcp.group(2)) > LAST_PORT) {
            throw new SettingsException("cannot connect to \"" + text
                    + "\": write unix:PATH or HOST:PORT, for example 127.0.0.1:7627 or [::1]:7627");
        }
        String host = tcp.group(1).replaceAll("[\\[\\]]", "");
        return new Address(Optional.empty(), host.isEmpty() ? "127.0.0.1" : host, Integer.parseInt(tcp.group(2)));
    }

    private static Address socket(String text, Environment environment) {
        String path = text.startsWith("unix://") ? text.substring("unix://".length()) : text.substring(UNIX.length());
        if (path.isBlank()) {
            throw new SettingsException("\"" + text + "\" has no socket path: write unix:PATH");
        }
        Path absolute = environment.expand(path).toAbsolutePath();
        int size = absolute.toString().getBytes(StandardCharsets.UTF_8).length;
        if (size > MOST_SOCKET_PATH_BYTES) {
            throw new SettingsException("the socket path " + absolute + " is " + size
                    + " bytes long; the system allows " + MOST_SOCKET_PATH_BYTES);
        }
        return new Address(Optional.of(absolute), "", 0);
    }

    /** Returns whether the address is on this machine. Of host names, only {@code localhost} counts. */
    boolean loopback() {
        if (socket.isPresent() || host.equals("localhost")) {
            return true;
        }
        try {
            return NUMERIC.matcher(host).matches()
                    && InetAddress.getByName(host).isLoopbackAddress();
        } catch (UnknownHostException notAnAddress) {
            return false;
        }
    }

    /** Returns whether the host is a name that can have several machines. {@code localhost} is one machine. */
    boolean named() {
        return socket.isEmpty()
                && !host.equalsIgnoreCase("localhost")
                && !NUMERIC.matcher(host).matches();
    }

    /** Returns the authority of calls, which is also the name in the certificate unless another one is set. */
    String authority() {
        return socket.isPresent() ? "localhost" : toString();
    }

    @Override
    public String toString() {
        return socket.map(path -> UNIX + path).orElse((host.contains(":") ? "[" + host + "]" : host) + ":" + port);
    }
}
