package io.memoryd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.TlsServerCredentials;
import io.memoryd.v1.MemorySearchRequest;
import io.memoryd.v1.MemoryServiceGrpc;
import io.memoryd.v1.SyncRequest;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class BalancingTest {
    private static final String LOCAL = "127.0.0.1";

    @TempDir
    Path folder;

    private final List<FakeDaemon> daemons = new ArrayList<>();
    private FakeDaemon first;
    private FakeDaemon second;

    @BeforeEach
    void start() throws IOException {
        first = daemon(LOCAL, 0);
        second = daemon(LOCAL, 0);
    }

    @AfterEach
    void stop() throws InterruptedException {
        for (FakeDaemon daemon : daemons) {
            daemon.stop();
        }
    }

    private FakeDaemon daemon(String host, int port) throws IOException {
        FakeDaemon daemon = new FakeDaemon(host, port, Optional.empty());
        daemons.add(daemon);
        return daemon;
    }

    private static String at(FakeDaemon daemon) {
        return LOCAL + ":" + daemon.port();
    }

    private Memoryd.Builder builder() {
        return new Memoryd.Builder(Environment.of(Map.of("HOME", folder.toString())))
                .address(at(first) + " , " + at(second))
                .timeout(Duration.ofSeconds(60));
    }

    @Test
    void callsAlternateBetweenTheAddresses() {
        try (MemorydClient client = builder().connect()) {
            callUntil(client, () -> first.calls() > 0 && second.calls() > 0);
            int before = first.calls();
            int beforeSecond = second.calls();
            for (int call = 0; call < 20; call++) {
                search(client);
            }
            assertEquals(10, first.calls() - before);
            assertEquals(10, second.calls() - beforeSecond);
        }
    }

    @Test
    void streamsAlternateBetweenTheAddresses() {
        try (MemorydClient client = builder().connect()) {
            callUntil(client, () -> first.calls() > 0 && second.calls() > 0);
            int before = first.calls();
            int beforeSecond = second.calls();
            for (int call = 0; call < 4; call++) {
                try (var events = client.sync(SyncRequest.getDefaultInstance())) {
                    events.forEachRemaining(event -> {});
                }
            }
            assertEquals(2, first.calls() - before);
            assertEquals(2, second.calls() - beforeSecond);
        }
    }

    @Test
    void aReplicaThatStopsIsSkippedAndGetsCallsAgainWhenItIsBack() throws Exception {
        try (MemorydClient client = builder().connect()) {
            callUntil(client, () -> first.calls() > 0 && second.calls() > 0);
            int port = first.port();
            first.stop();
            for (int call = 0; call < 20; call++) {
                search(client);
            }
            FakeDaemon again = daemon(LOCAL, port);
            callUntil(client, () -> again.calls() > 0);
        }
    }

    @Test
    void aCallThatAReplicaRefusesIsRetriedAtAnother() {
        first.failures.set(Integer.MAX_VALUE);
        try (MemorydClient client = builder().connect()) {
            callUntil(client, () -> first.calls() > 3 && second.calls() > 3);
        }
    }

    @Test
    void ifNoReplicaAnswersTheErrorNamesAllAddresses() throws Exception {
        try (MemorydClient client = builder().connect()) {
            callUntil(client, () -> first.calls() > 0 && second.calls() > 0);
            String begin = "the connection to " + at(first) + ", " + at(second) + " failed: ";
            first.stop();
            second.stop();
            MemorydException error = assertThrows(MemorydException.class, () -> search(client));
            assertEquals(Status.Code.UNAVAILABLE, error.code());
            assertTrue(error.getMessage().startsWith(begin), error.getMessage());
        }
    }

    @Test
    void callsAlternateBetweenTheIpAddressesOfAHostName() throws Exception {
        FakeDaemon other = daemon("127.0.0.2", first.port());
        var found = new Endpoint(
                Addresses.of(new Address(Optional.empty(), "replicas", first.port())),
                Optional.empty(),
                Optional.empty());
        ManagedChannel channel = Channels.open(found, Optional.empty(), host ->
                new InetAddress[] {InetAddress.getByName("127.0.0.2"), InetAddress.getByName(LOCAL)});
        try {
            var stub = MemoryServiceGrpc.newBlockingStub(channel);
            until(
                    () -> stub.memorySearch(MemorySearchRequest.getDefaultInstance()),
                    () -> first.calls() > 3 && other.calls() > 3);
        } finally {
            channel.shutdownNow();
        }
    }

    @Test
    void aHostNameIsResolvedAgainAfterAConnectionFailedAndUntilItIsKnown() throws Exception {
        FakeDaemon other = daemon("127.0.0.2", first.port());
        List<String> ips = new ArrayList<>();
        AddressResolver.Lookup lookup = host -> {
            synchronized (ips) {
                if (ips.isEmpty()) {
                    throw new UnknownHostException(host);
                }
                return new InetAddress[] {InetAddress.getByName(ips.get(0))};
            }
        };
        var found = new Endpoint(
                Addresses.of(new Address(Optional.empty(), "replicas", first.port())),
                Optional.empty(),
                Optional.empty());
        ManagedChannel channel = Channels.open(found, Optional.empty(), lookup);
        try {
            var stub = MemoryServiceGrpc.newBlockingStub(channel);
            Runnable search = () -> stub.memorySearch(MemorySearchRequest.getDefaultInstance());
            var unknown = assertThrows(io.grpc.StatusRuntimeException.class, search::run);
            assertTrue(unknown.getMessage().contains("replicas"), unknown.getMessage());
            replace(ips, LOCAL);
            untilAnswered(search);
            replace(ips, "127.0.0.2");
            first.stop();
            untilAnswered(search);
            assertTrue(other.calls() > 0);
        } finally {
            channel.shutdownNow();
        }
    }

    @Test
    void withoutAServerNameTheCertificateOfEachReplicaIsForItsOwnHost() throws Exception {
        FakeDaemon one = secured("ip:127.0.0.1");
        FakeDaemon other = secured("dns:localhost");
        FakeDaemon misnamed = secured("dns:localhost");
        String list = at(one) + ",localhost:" + other.port() + "," + at(misnamed);
        Tls tls = Tls.trusting(folder.resolve("trusted.pem"));
        try (MemorydClient client = builder().address(list).tls(tls).connect()) {
            callUntil(client, () -> one.calls() > 3 && other.calls() > 3);
            assertEquals(0, misnamed.calls());
        }
        Tls named = tls.withServerName("localhost");
        try (MemorydClient client = builder().address(list).tls(named).connect()) {
            int before = one.calls();
            callUntil(client, () -> misnamed.calls() > 3);
            assertEquals(before, one.calls());
        }
    }

    /** Starts a server with a new certificate for a name, and adds the certificate to the trusted ones. */
    private FakeDaemon secured(String name) throws Exception {
        Path store = folder.resolve("store" + daemons.size() + ".p12");
        Process made = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "keytool")
                                .toString(),
                        "-genkeypair",
                        "-alias",
                        "own",
                        "-keyalg",
                        "EC",
                        "-dname",
                        "CN=memoryd" + daemons.size(),
                        "-ext",
                        "san=" + name,
                        "-keystore",
                        store.toString(),
                        "-storetype",
                        "PKCS12",
                        "-storepass",
                        "changeit")
                .inheritIO()
                .start();
        assertEquals(0, made.waitFor());
        byte[] certificate = pem(store, "CERTIFICATE");
        Path trusted = folder.resolve("trusted.pem");
        byte[] before = Files.exists(trusted) ? Files.readAllBytes(trusted) : new byte[0];
        Files.writeString(
                trusted,
                new String(before, StandardCharsets.US_ASCII) + new String(certificate, StandardCharsets.US_ASCII));
        var credentials = TlsServerCredentials.create(
                new ByteArrayInputStream(certificate), new ByteArrayInputStream(pem(store, "PRIVATE KEY")));
        FakeDaemon daemon = new FakeDaemon(LOCAL, 0, Optional.of(credentials));
        daemons.add(daemon);
        return daemon;
    }

    private static byte[] pem(Path file, String kind) throws IOException, GeneralSecurityException {
        char[] password = "changeit".toCharArray();
        KeyStore store = KeyStore.getInstance(file.toFile(), password);
        byte[] content = kind.equals("CERTIFICATE")
                ? store.getCertificate("own").getEncoded()
                : store.getKey("own", password).getEncoded();
        String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content);
        return ("-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n")
                .getBytes(StandardCharsets.US_ASCII);
    }

    private static void replace(List<String> list, String only) {
        synchronized (list) {
            list.clear();
            list.add(only);
        }
    }

    private static void search(MemorydClient client) {
        Memoryd.typed(() -> client.memory().memorySearch(MemorySearchRequest.getDefaultInstance()));
    }

    private static void callUntil(MemorydClient client, BooleanSupplier holds) {
        until(() -> search(client), holds);
    }

    /** Repeats a call, which must succeed, until the condition holds. */
    private static void until(Runnable call, BooleanSupplier holds) {
        long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (!holds.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "the condition does not hold after 30 seconds");
            call.run();
        }
    }

    /** Repeats a call until it succeeds. */
    private static void untilAnswered(Runnable call) {
        long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (true) {
            try {
                call.run();
                return;
            } catch (io.grpc.StatusRuntimeException failed) {
                assertTrue(System.nanoTime() < end, "no answer after 30 seconds: " + failed);
            }
        }
    }
}
