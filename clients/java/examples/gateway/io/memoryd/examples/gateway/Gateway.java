package io.memoryd.examples.gateway;

import io.grpc.StatusRuntimeException;
import io.memoryd.client.EventStream;
import io.memoryd.client.Memoryd;
import io.memoryd.client.MemorydClient;
import io.memoryd.client.MemorydException;
import io.memoryd.client.SettingsException;
import io.memoryd.v1.FlushDecisionRequest;
import io.memoryd.v1.FlushDecisionResponse;
import io.memoryd.v1.MemoryAppendRequest;
import io.memoryd.v1.MemoryAppendResponse;
import io.memoryd.v1.MemoryGetRequest;
import io.memoryd.v1.MemorySearchRequest;
import io.memoryd.v1.MemorySearchResponse;
import io.memoryd.v1.SearchResult;
import io.memoryd.v1.SyncRequest;
import io.memoryd.v1.SyncResponse;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;

/**
 * Shows one turn of a gateway: syncs the index, searches, reads a result, asks whether to flush, appends, and searches
 * for the appended text. The daemon is found like by every client, for example by MEMORYD_ADDRESS; the question is the
 * first argument.
 */
public final class Gateway {
    private static final int SHOWN_RESULTS = 3;

    private final MemorydClient client;
    private final PrintStream out;

    private Gateway(MemorydClient client, PrintStream out) {
        this.client = client;
        this.out = out;
    }

    /** Exits with 1 and the reason if a call fails or the daemon cannot be reached. */
    public static void main(String[] arguments) {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String question = Arrays.stream(arguments).findFirst().orElse("what did we decide lately?");
        try (MemorydClient client = Memoryd.connect()) {
            new Gateway(client, out).run(question);
        } catch (MemorydException | StatusRuntimeException failed) {
            System.err.println(MemorydException.from(failed));
            System.exit(1);
        } catch (SettingsException refused) {
            System.err.println(refused.getMessage());
            System.exit(1);
        }
    }

    private void run(String question) {
        out.println("memoryd at " + client.address());
        sync();
        List<SearchResult> found = search(MemorySearchRequest.newBuilder().setQuery(question));
        found.stream().findFirst().ifPresent(this::read);
        decide();
        MemoryAppendResponse written = append("- " + Instant.now() + " the gateway was asked: " + question);
        var again = MemorySearchRequest.newBuilder().setQuery("the gateway was asked: " + question);
        if (written.hasIndexRevision()) {
            again.setMinRevision(written.getIndexRevision());
        }
        boolean there = search(again).stream().anyMatch(each -> holds(each, written));
        out.println("what was written " + (there ? "is found" : "is not among the best"));
    }

    private static boolean holds(SearchResult result, MemoryAppendResponse written) {
        return result.getPath().equals(written.getPath())
                && result.getStartLine() <= written.getStartLine()
                && result.getEndLine() >= written.getEndLine();
    }

    private void sync() {
        ProgressBar bar = new ProgressBar(out, System.console() != null);
        try (EventStream<SyncResponse> events = client.sync(SyncRequest.getDefaultInstance())) {
            for (SyncResponse event : events) {
                switch (event.getEventCase()) {
                    case PROGRESS -> bar.show(event.getProgress());
                    case FILE_FAILED -> bar.line(
                            "cannot index " + event.getFileFailed().getPath());
                    case COMPLETED -> bar.done(event.getCompleted());
                    default -> {}
                }
            }
        }
    }

    private List<SearchResult> search(MemorySearchRequest.Builder request) {
        out.println("search: " + request.getQuery());
        MemorySearchResponse answer = client.memory()
                .memorySearch(request.setMaxResults(SHOWN_RESULTS).build());
        if (answer.getResultsCount() == 0) {
            out.println("  nothing: " + answer.getInfo().getEmptyReason());
        }
        for (SearchResult each : answer.getResultsList()) {
            String snippet = each.getSnippet().strip().lines().findFirst().orElse("");
            out.printf("  %.2f %s:%d  %s%n", each.getScore(), each.getPath(), each.getStartLine(), snippet);
        }
        return answer.getResultsList();
    }

    private void read(SearchResult result) {
        var text = client.memory()
                .memoryGet(MemoryGetRequest.newBuilder()
                        .setPath(result.getPath())
                        .setStartLine(result.getStartLine())
                        .setLineCount(result.getEndLine() - result.getStartLine() + 1)
                        .build());
        out.printf("read: lines %d-%d of %s%n", text.getStartLine(), text.getEndLine(), text.getPath());
    }

    private void decide() {
        FlushDecisionResponse decision = client.memory()
                .flushDecision(FlushDecisionRequest.newBuilder()
                        .setTotalTokens(178_000)
                        .setContextWindowTokens(200_000)
                        .build());
        out.println("flush: " + (decision.getFlush() ? "yes, to " + decision.getTargetPath() : "no") + " ("
                + decision.getReason() + ")");
    }

    private MemoryAppendResponse append(String text) {
        MemoryAppendResponse written = client.memory()
                .memoryAppend(MemoryAppendRequest.newBuilder().setText(text).build());
        out.println("append: " + written.getPath() + ":" + written.getStartLine());
        return written;
    }
}
