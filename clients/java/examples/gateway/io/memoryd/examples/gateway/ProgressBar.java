package io.memoryd.examples.gateway;

import io.memoryd.v1.SyncCompleted;
import io.memoryd.v1.SyncProgress;
import java.io.PrintStream;

/** A progress bar of a sync: redrawn in place on a terminal; otherwise one line for each 10 %. */
final class ProgressBar {
    private static final int WIDTH = 30;
    private static final int STEPS = 10;

    private final PrintStream out;
    private final boolean terminal;
    private String drawn = "";
    private int step = -1;

    ProgressBar(PrintStream out, boolean terminal) {
        this.out = out;
        this.terminal = terminal;
    }

    /** Shows the progress of the run. Each event is complete, so events may be skipped. */
    void show(SyncProgress progress) {
        int total = progress.getTotalFiles();
        double share = total == 0 ? 0 : (double) progress.getCompletedFiles() / total;
        String text = "sync: [%s] %d/%d files, %d chunks%s"
                .formatted(
                        bar(share),
                        progress.getCompletedFiles(),
                        total,
                        progress.getCompletedChunks(),
                        progress.hasEta() ? ", " + progress.getEta().getSeconds() + " s left" : "");
        if (terminal) {
            draw(text);
        } else if ((int) (share * STEPS) > step) {
            step = (int) (share * STEPS);
            out.println(text);
        }
    }

    /** Prints a message on a separate line. */
    void line(String text) {
        draw("");
        out.println((terminal ? "\r" : "") + text);
    }

    /** Prints the result. */
    void done(SyncCompleted outcome) {
        line("sync: done in %d ms: %d files indexed, %d unchanged, %d removed, %d failed; revision %d"
                .formatted(
                        outcome.getElapsed().getSeconds() * 1000
                                + outcome.getElapsed().getNanos() / 1_000_000,
                        outcome.getIndexedFiles(),
                        outcome.getUnchangedFiles(),
                        outcome.getRemovedFiles(),
                        outcome.getFailedFiles(),
                        outcome.getIndexRevision()));
    }

    private void draw(String text) {
        if (terminal) {
            out.print("\r" + text + " ".repeat(Math.max(0, drawn.length() - text.length())));
            out.flush();
            drawn = text;
        }
    }

    private static String bar(double share) {
        int full = (int) Math.round(share * WIDTH);
        return "#".repeat(full) + ".".repeat(WIDTH - full);
    }
}
