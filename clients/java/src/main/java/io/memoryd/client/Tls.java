package io.memoryd.client;

import java.nio.file.Path;
import java.util.Optional;

/**
 * What a client needs to speak TLS, by PEM files, which are read when the client is made.
 *
 * @param caFile the certificates to trust, or the daemon's own; none means the authorities that Java trusts
 * @param certFile our certificate, for a daemon that asks for one
 * @param keyFile its key, in PKCS#8 ({@code BEGIN PRIVATE KEY}), unencrypted
 * @param serverName the name to look for in the daemon's certificate where that is not the host that is dialled
 */
public record Tls(Optional<Path> caFile, Optional<Path> certFile, Optional<Path> keyFile, Optional<String> serverName) {
    /**
     * Checks that certificate and key come together.
     *
     * @param caFile the certificates to trust, or the daemon's own
     * @param certFile our certificate
     * @param keyFile its key
     * @param serverName the name to look for in the daemon's certificate
     * @throws SettingsException where one of them is missing
     */
    public Tls {
        if (certFile.isPresent() != keyFile.isPresent()) {
            throw new SettingsException("a client certificate and its key are needed together; only the "
                    + (certFile.isPresent() ? "certificate " + certFile.get() : "key " + keyFile.get()) + " is named");
        }
    }

    /**
     * Trusts the authorities that Java trusts.
     *
     * @return TLS without a certificate of our own
     */
    public static Tls standard() {
        return new Tls(Optional.empty(), Optional.empty(), Optional.empty(), Optional.empty());
    }

    /**
     * Trusts the certificates of a file, and no others.
     *
     * @param caFile PEM certificates of authorities, or the daemon's own
     * @return TLS without a certificate of our own
     */
    public static Tls trusting(Path caFile) {
        return new Tls(Optional.of(caFile), Optional.empty(), Optional.empty(), Optional.empty());
    }

    /**
     * Shows a certificate to a daemon that asks for one.
     *
     * @param certFile PEM certificate, with its chain
     * @param keyFile PEM key, in PKCS#8, unencrypted
     * @return this, with the certificate
     */
    public Tls withCertificate(Path certFile, Path keyFile) {
        return new Tls(caFile, Optional.of(certFile), Optional.of(keyFile), serverName);
    }

    /**
     * Looks for another name than the host's in the daemon's certificate.
     *
     * @param name the name
     * @return this, with the name
     */
    public Tls withServerName(String name) {
        return new Tls(caFile, certFile, keyFile, Optional.of(name));
    }
}
