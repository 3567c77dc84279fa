package io.memoryd.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.StatusRuntimeException;
import io.memoryd.v1.ListAgentsRequest;
import io.memoryd.v1.MemorySearchRequest;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class RedialTest {
    private static final int DIALS = 7;

    @Test
    void aDaemonThatHangsUpIsDialledAgainWithinAboutASecondEachTime() throws Exception {
        try (ServerSocket daemon = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            daemon.setSoTimeout(30_000);
            try (MemorydClient client = new Memoryd.Builder(Environment.of(Map.of("HOME", "/nowhere")))
                    .address("127.0.0.1:" + daemon.getLocalPort())
                    .connect()) {
                Thread caller = new Thread(() -> call(client));
                caller.start();
                List<Long> dials = new ArrayList<>();
                for (int dial = 0; dial < DIALS; dial++) {
                    daemon.accept().close();
                    dials.add(System.nanoTime());
                }
                caller.join();
                Duration all = Duration.ofNanos(dials.get(DIALS - 1) - dials.get(0));
                // With gRPC's own delays, from one second with a factor of 1.6, six attempts take at least twenty
                // seconds.
                assertTrue(all.toSeconds() < 12, "dialled " + DIALS + " times in " + all);
            }
        }
    }

    @Test
    void oneOfTwoReplicasThatHangsUpIsDialledAgainAsSoon() throws Exception {
        FakeDaemon other = new FakeDaemon("127.0.0.1", 0, Optional.empty());
        try (ServerSocket daemon = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            daemon.setSoTimeout(30_000);
            try (MemorydClient client = new Memoryd.Builder(Environment.of(Map.of("HOME", "/nowhere")))
                    .address("127.0.0.1:" + other.port() + ",127.0.0.1:" + daemon.getLocalPort())
                    .connect()) {
                client.memory().memorySearch(MemorySearchRequest.getDefaultInstance());
                List<Long> dials = new ArrayList<>();
                for (int dial = 0; dial < DIALS; dial++) {
                    daemon.accept().close();
                    dials.add(System.nanoTime());
                }
                client.memory().memorySearch(MemorySearchRequest.getDefaultInstance());
                Duration all = Duration.ofNanos(dials.get(DIALS - 1) - dials.get(0));
                assertTrue(all.toSeconds() < 12, "dialled " + DIALS + " times in " + all);
            }
        } finally {
            other.stop();
        }
    }

    private static void call(MemorydClient client) {
        try {
            client.memory().listAgents(ListAgentsRequest.getDefaultInstance());
        } catch (StatusRuntimeException expected) {
            // No server is running.
        }
    }
}
