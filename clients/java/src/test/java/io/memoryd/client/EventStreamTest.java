package io.memoryd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.memoryd.v1.SyncRequest;
import io.memoryd.v1.SyncResponse;
import io.memoryd.v1.WatchIndexRequest;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class EventStreamTest {
    private Path folder;
    private FakeDaemon daemon;
    private MemorydClient client;

    @BeforeEach
    void connect() throws Exception {
        folder = Files.createTempDirectory(Path.of("/tmp"), "m");
        daemon = new FakeDaemon(folder.resolve("s"));
        client = new Memoryd.Builder(Environment.of(Map.of("HOME", folder.toString())))
                .address("unix:" + folder.resolve("s"))
                .connect();
    }

    @AfterEach
    void close() throws Exception {
        client.close();
        daemon.stop();
        Files.deleteIfExists(folder.resolve("s"));
        Files.delete(folder);
    }

    @Test
    void aStreamIsReadToItsEnd() {
        List<Long> sequences = new ArrayList<>();
        EventStream<SyncResponse> stream = client.sync(SyncRequest.getDefaultInstance());
        stream.forEachRemaining(event -> sequences.add(event.getSequence()));
        assertEquals(List.of(1L, 2L, 3L), sequences);
        assertFalse(stream.hasNext());
        assertThrows(NoSuchElementException.class, stream::next);
    }

    @Test
    void aStreamThatFailsIsTyped() {
        var request = SyncRequest.newBuilder().setReason("no more").build();
        try (var stream = client.sync(request)) {
            MemorydException error = assertThrows(MemorydException.class, () -> stream.forEachRemaining(event -> {}));
            assertEquals(Status.Code.ABORTED, error.code());
            assertEquals("no more", error.getMessage());
        }
    }

    @Test
    void leavingAStreamEndsItsCall() throws InterruptedException {
        try (var stream = client.watch(WatchIndexRequest.getDefaultInstance())) {
            assertEquals("first", stream.next().getAgentId());
        }
        assertTrue(daemon.left.await(20, TimeUnit.SECONDS));
    }

    @Test
    void aClosedStreamTellsNoMoreAlsoWhereEventsAreWaiting() {
        var stream = client.watch(WatchIndexRequest.getDefaultInstance());
        stream.next();
        stream.close();
        assertEquals(
                Status.Code.CANCELLED,
                assertThrows(MemorydException.class, stream::next).code());
        stream.close();
    }

    @Test
    void closingEndsAWaitInAnotherThread() throws Exception {
        var stream = client.watch(WatchIndexRequest.getDefaultInstance());
        stream.next();
        stream.next();
        CompletableFuture<Boolean> waiting = CompletableFuture.supplyAsync(stream::hasNext);
        stream.close();
        var error =
                assertThrows(java.util.concurrent.ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertEquals(Status.Code.CANCELLED, MemorydException.from(error).code());
    }
}
