package io.memoryd.client;

import java.nio.file.Path;
import java.util.Optional;

/**
 * The PEM files of a TLS connection. They are read when the client is created.
 *
 * @param caFile the trusted certificates, or the daemon's own; none means the authorities that Java trusts
 * @param certFile the client certificate, for a daemon that requires one
 * @param keyFile its private key, in PKCS#8 ({@code BEGIN PRIVATE KEY}), unencrypted
 * @param serverName the name in the daemon's certificate, if it differs from the host in the address; it applies to all
 *     addresses of a client
 */
public record Tls(Optional<Path> caFile, Optional<Path> certFile, Optional<Path> keyFile, Optional<String> serverName) {
    /**
     * Checks that certificate and key are both set or both missing.
     *
     * @param caFile the trusted certificates, or the daemon's own
     * @param certFile the client certificate
     * @param keyFile its private key
     * @param serverName the name in the daemon's certificate
     * @throws SettingsException if one of them is missing
     */
    public Tls {
        if (certFile.isPresent() != keyFile.isPresent()) {
            throw new SettingsException("a client certificate and its key are needed together; only the "
                    + (certFile.isPresent() ? "certificate " + certFile.get() : "key " + keyFile.get()) + " is set");
        }
    }

    /**
     * Trusts the authorities that Java trusts.
     *
     * @return TLS without a client certificate
     */
    public static Tls standard() {
        return new Tls(Optional.empty(), Optional.empty(), Optional.empty(), Optional.empty());
    }

    /**
     * Trusts only the certificates of a file.
     *
     * @param caFile PEM certificates of authorities, or the daemon's own
     * @return TLS without a client certificate
     */
    public static Tls trusting(Path caFile) {
        return new Tls(Optional.of(caFile), Optional.empty(), Optional.empty(), Optional.empty());
    }

    /**
     * Adds a client certificate, for a daemon that requires one.
     *
     * @param certFile PEM certificate, with its chain
     * @param keyFile PEM private key, in PKCS#8, unencrypted
     * @return these settings with the certificate
     */
    public Tls withCertificate(Path certFile, Path keyFile) {
        return new Tls(caFile, Optional.of(certFile), Optional.of(keyFile), serverName);
    }

    /**
     * Sets the name in the daemon's certificate, if it differs from the host.
     *
     * @param name the name
     * @return these settings with the name
     */
    public Tls withServerName(String name) {
        return new Tls(caFile, certFile, keyFile, Optional.of(name));
    }
}
