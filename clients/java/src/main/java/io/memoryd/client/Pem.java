package io.memoryd.client;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.util.regex.Pattern;

/** Checks PEM files before gRPC reads them, because its messages do not name the file. */
final class Pem {
    private static final Pattern PKCS8 =
            Pattern.compile("-----BEGIN PRIVATE KEY-----\\s[A-Za-z0-9+/=\\s]+-----END PRIVATE KEY-----");

    private Pem() {}

    /** Returns the content of a file that contains certificates. */
    static ByteArrayInputStream certificates(Path file) {
        byte[] content = content(file);
        try {
            var found = CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(content));
            if (found.isEmpty()) {
                throw new SettingsException(file + " contains no PEM certificate");
            }
        } catch (CertificateException unusable) {
            throw new SettingsException(file + " contains no PEM certificate: " + unusable.getMessage(), unusable);
        }
        return new ByteArrayInputStream(content);
    }

    /** Returns the content of a file that contains a private key in the format that gRPC for Java reads. */
    static ByteArrayInputStream key(Path file) {
        byte[] content = content(file);
        if (!PKCS8.matcher(new String(content, StandardCharsets.ISO_8859_1)).find()) {
            throw new SettingsException(file
                    + " contains no unencrypted PKCS#8 key (\"BEGIN PRIVATE KEY\"), the only format that"
                    + " gRPC for Java reads; to convert a key: openssl pkcs8 -topk8 -nocrypt -in " + file);
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
