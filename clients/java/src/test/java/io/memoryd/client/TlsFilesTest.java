package io.memoryd.client;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.Base64;
import java.util.Map;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TlsFilesTest {
    @TempDir
    Path folder;

    @Test
    void aFileThatIsNotThereIsNamed() {
        assertRefused(Tls.trusting(folder.resolve("ca.pem")), folder + "/ca.pem: there is no such file");
        assertRefused(Tls.trusting(folder), folder.toString());
    }

    @Test
    void aFileWithoutACertificateIsNamed() throws IOException {
        Path file = write("ca.pem", "");
        assertRefused(Tls.trusting(file), file + " contains no PEM certificate");
        write("ca.pem", "hello");
        assertRefused(Tls.trusting(file), file + " contains no PEM certificate");
        write("ca.pem", pem("CERTIFICATE"));
        assertRefused(Tls.trusting(file), file + " contains no PEM certificate");
    }

    @Test
    void aKeyOfAnotherFormIsRefusedWithWhatMakesOneOfOurs() throws IOException {
        Path key = write("key.pem", pem("EC PRIVATE KEY"));
        assertRefused(Tls.standard().withCertificate(authority(), key), "openssl pkcs8 -topk8 -nocrypt -in " + key);
    }

    @Test
    void aKeyThatIsNoneIsRefused() throws IOException {
        Path key = write("key.pem", pem("PRIVATE KEY"));
        assertRefused(Tls.standard().withCertificate(authority(), key), "cannot connect to memory.example:7627");
    }

    @Test
    void durationsThatAreNoneAreRefused() {
        assertThrows(SettingsException.class, () -> builder().timeout(Duration.ZERO));
        assertThrows(SettingsException.class, () -> builder().keepAlive(Duration.ofSeconds(-1)));
    }

    private static Memoryd.Builder builder() {
        return new Memoryd.Builder(Environment.of(Map.of("HOME", "/nowhere"))).address("memory.example:7627");
    }

    private static void assertRefused(Tls tls, String part) {
        String message = assertThrows(
                        SettingsException.class,
                        () -> builder().tls(tls).connect().close())
                .getMessage();
        assertTrue(message.contains(part), message);
    }

    private static String pem(String kind) {
        return "-----BEGIN " + kind + "-----\naGVsbG8=\n-----END " + kind + "-----\n";
    }

    /** A certificate of an authority that Java trusts. */
    private Path authority() throws IOException {
        try {
            TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            factory.init((KeyStore) null);
            X509Certificate any = ((X509TrustManager) factory.getTrustManagers()[0]).getAcceptedIssuers()[0];
            String content = Base64.getMimeEncoder().encodeToString(any.getEncoded());
            return write("cert.pem", "-----BEGIN CERTIFICATE-----\n" + content + "\n-----END CERTIFICATE-----\n");
        } catch (GeneralSecurityException absent) {
            throw new IllegalStateException(absent);
        }
    }

    private Path write(String name, String text) throws IOException {
        return Files.writeString(folder.resolve(name), text);
    }
}
