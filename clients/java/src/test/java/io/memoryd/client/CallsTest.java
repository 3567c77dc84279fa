package io.memoryd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Context;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.memoryd.v1.FlushDecisionRequest;
import io.memoryd.v1.MemoryAppendRequest;
import io.memoryd.v1.MemoryMoveRequest;
import io.memoryd.v1.MemoryRecallRequest;
import io.memoryd.v1.MemoryRestoreRequest;
import io.memoryd.v1.MemorySearchRequest;
import io.memoryd.v1.MemoryWriteRequest;
import io.memoryd.v1.RememberRequest;
import io.memoryd.v1.StatusRequest;
import io.memoryd.v1.SyncRequest;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class CallsTest {
    private static final StatusRequest PROBE =
            StatusRequest.newBuilder().setProbe(true).build();

    private Path folder;
    private FakeDaemon daemon;
    private MemorydClient client;

    @BeforeEach
    void connect() throws IOException {
        // A short name, because a socket path is limited to about a hundred bytes, with characters that a target has to
        // escape.
        folder = Files.createTempDirectory(Path.of("/tmp"), "m ö#");
        daemon = new FakeDaemon(folder.resolve("s"));
        client = builder().connect();
    }

    @AfterEach
    void close() throws Exception {
        client.close();
        daemon.stop();
        Files.deleteIfExists(folder.resolve("s"));
        Files.delete(folder);
    }

    private Memoryd.Builder builder() {
        return new Memoryd.Builder(Environment.of(Map.of("HOME", folder.toString())))
                .address("unix:" + folder.resolve("s"))
                .token("secret");
    }

    @Test
    void aCallHasTheDocumentedDeadline() {
        client.memory().memorySearch(MemorySearchRequest.getDefaultInstance());
        assertRemaining(5);
        client.memory().memoryRecall(MemoryRecallRequest.getDefaultInstance());
        assertRemaining(2);
        client.entries().remember(RememberRequest.getDefaultInstance());
        assertRemaining(10);
    }

    @Test
    void aStatusThatProbesMayTakeLonger() throws Exception {
        client.memory().status(StatusRequest.getDefaultInstance());
        assertRemaining(2);
        client.memory().status(PROBE);
        assertRemaining(10);
        assertEquals("", client.memoryFuture().status(PROBE).get().getAgentId());
        assertRemaining(10);
    }

    @Test
    void aStatusCanBeCancelled() {
        var future = client.memoryFuture().status(PROBE);
        future.cancel(true);
        assertTrue(future.isCancelled());
    }

    @Test
    void aDeadlineThatTheCallerNamesCounts() throws Exception {
        client.memory().withDeadlineAfter(60, TimeUnit.SECONDS).memorySearch(MemorySearchRequest.getDefaultInstance());
        assertRemaining(60);
        var scheduler = Executors.newSingleThreadScheduledExecutor();
        Context.current().withDeadlineAfter(60, TimeUnit.SECONDS, scheduler).call(() -> client.memory()
                .status(PROBE));
        assertRemaining(60);
        scheduler.shutdownNow();
    }

    @Test
    void aTimeoutOfTheClientReplacesDocumentedDeadlinesAlone() {
        try (MemorydClient patient = builder().timeout(Duration.ofSeconds(90)).connect()) {
            patient.memory().status(PROBE);
            assertRemaining(90);
            patient.sync(SyncRequest.getDefaultInstance()).hasNext();
            assertEquals(Optional.empty(), daemon.remaining);
        }
    }

    @Test
    void everyUnaryCallHasTheDeadlineThatTheContractDocuments() throws IOException {
        Map<String, Integer> documented = new HashMap<>();
        for (String file : List.of("memory_service", "entry_service")) {
            String proto = Files.readString(Path.of("../../protos/memoryd/v1/" + file + ".proto"));
            Matcher service = Pattern.compile("(?m)^service (\\w+)").matcher(proto);
            assertTrue(service.find());
            Matcher rpc = Pattern.compile("((?: +//.*\n)+) +rpc (\\w+)\\(\\w+\\) returns \\((stream )?")
                    .matcher(proto);
            while (rpc.find()) {
                if (rpc.group(3) == null) {
                    Matcher seconds = Pattern.compile(
                                    "Default\\s+(?://\\s+)?client\\s+(?://\\s+)?deadline:\\s+(?://\\s+)?(\\d+) s")
                            .matcher(rpc.group(1));
                    assertTrue(seconds.find(), rpc.group(2));
                    documented.put(
                            "memoryd.v1." + service.group(1) + "/" + rpc.group(2), Integer.valueOf(seconds.group(1)));
                }
            }
        }
        assertEquals(documented, Deadlines.DOCUMENTED);
    }

    @Test
    void whatIsWrittenGetsAKeyThatItsRetriesShare() {
        daemon.failures.set(2);
        client.memory().memoryAppend(MemoryAppendRequest.getDefaultInstance());
        assertEquals(3, daemon.keys.size());
        assertEquals(1, new HashSet<>(daemon.keys).size());
        client.memory().memoryAppend(MemoryAppendRequest.getDefaultInstance());
        client.memory().memoryWrite(MemoryWriteRequest.getDefaultInstance());
        client.memory().memoryMove(MemoryMoveRequest.getDefaultInstance());
        client.memory().memoryRestore(MemoryRestoreRequest.getDefaultInstance());
        client.entries().remember(RememberRequest.getDefaultInstance());
        assertEquals(6, new HashSet<>(daemon.keys).size());
        assertTrue(daemon.keys.stream().allMatch(key -> key.matches("[0-9a-f-]{36}")), daemon.keys.toString());
    }

    @Test
    void aKeyThatTheCallerNamesStays() {
        client.memory()
                .memoryAppend(MemoryAppendRequest.newBuilder()
                        .setIdempotencyKey("mine")
                        .build());
        client.memory()
                .memoryWrite(MemoryWriteRequest.newBuilder()
                        .setIdempotencyKey("edit")
                        .build());
        client.entries()
                .remember(RememberRequest.newBuilder().setIdempotencyKey("ours").build());
        assertEquals(List.of("mine", "edit", "ours"), daemon.keys);
    }

    /** The response of a search that may take a minute. */
    private MemorydException unavailable() {
        MemorydException error = assertThrows(
                MemorydException.class,
                () -> Memoryd.typed(() -> client.memory()
                        .withDeadlineAfter(60, TimeUnit.SECONDS)
                        .memorySearch(MemorySearchRequest.getDefaultInstance())));
        assertEquals(Status.Code.UNAVAILABLE, error.code());
        return error;
    }

    @Test
    void afterFiveAttemptsACallIsUnavailable() {
        daemon.failures.set(100);
        MemorydException error = unavailable();
        assertEquals("busy", error.getMessage());
        assertEquals(5, daemon.tokens.size());
    }

    @Test
    void aCallWithADeadlineOfASecondIsTriedFourTimes() {
        daemon.failures.set(100);
        var patient = client.memory().withDeadlineAfter(60, TimeUnit.SECONDS);
        var error = assertThrows(
                StatusRuntimeException.class, () -> patient.flushDecision(FlushDecisionRequest.getDefaultInstance()));
        assertEquals(Status.Code.UNAVAILABLE, error.getStatus().getCode());
        assertEquals(4, daemon.tokens.size());
    }

    @Test
    void aDaemonThatIsNotThereIsNamed() throws Exception {
        daemon.stop();
        MemorydException error = unavailable();
        String begin = "the connection to unix:" + folder.resolve("s") + " failed: ";
        assertTrue(error.getMessage().startsWith(begin), error.getMessage());
    }

    @Test
    void noTokenIsSentOverASocket() {
        client.memory().memorySearch(MemorySearchRequest.getDefaultInstance());
        assertEquals(List.of(Optional.<String>empty()), daemon.tokens);
    }

    @Test
    void aFutureThatFailsIsTyped() {
        daemon.failures.set(100);
        var answer = client.memoryFuture()
                .withDeadlineAfter(60, TimeUnit.SECONDS)
                .memorySearch(MemorySearchRequest.getDefaultInstance());
        ExecutionException wrapped = assertThrows(ExecutionException.class, answer::get);
        assertEquals(Status.Code.UNAVAILABLE, MemorydException.from(wrapped).code());
    }

    @Test
    void aClosedClientAnswersNothingMore() {
        client.close();
        var error = assertThrows(StatusRuntimeException.class, () -> client.memory()
                .memorySearch(MemorySearchRequest.getDefaultInstance()));
        assertNotEquals(Status.Code.OK, error.getStatus().getCode());
        assertEquals(0, daemon.tokens.size());
    }

    private void assertRemaining(double seconds) {
        double remaining = daemon.remaining.orElseThrow();
        assertTrue(remaining <= seconds && remaining > seconds / 2, remaining + " of " + seconds);
    }
}
