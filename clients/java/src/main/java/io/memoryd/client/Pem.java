package io.memoryd.client;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.util.regex.Pattern;

/** PEM files, looked at before gRPC does, whose own words do not say which file they are about. */
final class Pem {
    private static final Pattern PKCS8 =
            Pattern.compile("-----BEGIN PRIVATE KEY-----\\s[A-Za-z0-9+/=\\s]+-----END PRIVATE KEY-----");

    private Pem() {}

    /** The content of a file that holds certificates. */
    static ByteArrayInputStream certificates(Path file) {
        byte[] content = content(file);
        try {
            var found = CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(content));
            if (found.isEmpty()) {
                throw new SettingsException(file + " holds no certificate in PEM");
            }
        } catch (CertificateException unusable) {
            throw new SettingsException(file + " holds no certificate in PEM: " + unusable.getMessage(), unusable);
        }
        return new ByteArrayInputStream(content);
    }

    /** The content of a file that holds a key as gRPC for Java reads it. */
    static ByteArrayInputStream key(Path file) {
        byte[] content = content(file);
        if (!PKCS8.matcher(new String(content, StandardCharsets.ISO_8859_1)).find()) {
            throw new SettingsException(file
                    + " holds no unencrypted key in PKCS#8 (\"BEGIN PRIVATE KEY\"), which is all that"
                    + " gRPC for Java reads; of other keys one is made by: openssl pkcs8 -topk8 -nocrypt -in " + file);
        }
        return new ByteArrayInputStream(content);
    }

    private static byte[] content(Path file) {
        try {
            return Files.readAllBytes(file);
        } catch (IOException unreadable) {
            throw new SettingsException("cannot read " + file + ": " + Discovery.why(unreadable), unreadable);
        }
    }
}
