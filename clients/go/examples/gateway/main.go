// The gateway example shows one turn of a gateway: it syncs the index, searches, reads the best result, asks whether to
// flush, appends a line to today's log, and searches until the line is found.
//
//	go run ./examples/gateway "who owns the cache?"
//
// It finds the daemon like every client. Set MEMORYD_ADDRESS to use another daemon.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const defaultQuestion = "what was decided lately?"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	question := defaultQuestion
	if len(os.Args) > 1 {
		question = os.Args[1]
	}
	if err := run(ctx, question); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, question string) error {
	client, err := memoryd.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := ensureSync(ctx, client); err != nil {
		return err
	}
	if err := answer(ctx, client, question); err != nil {
		return err
	}
	if err := askWhetherToFlush(ctx, client); err != nil {
		return err
	}
	return remember(ctx, client, question)
}

// ensureSync follows a sync run to its end and shows a progress bar on standard error.
func ensureSync(ctx context.Context, client *memoryd.Client) error {
	stream, err := client.Sync(ctx, &memorydv1.SyncRequest{Reason: "gateway example"})
	if err != nil {
		return err
	}
	bar := newBar(os.Stderr)
	defer bar.end()
	for event, err := range stream.All() {
		if err != nil {
			return err
		}
		switch {
		case event.GetStarted() != nil:
			bar.show(&memorydv1.SyncProgress{Phase: memorydv1.SyncPhase_SYNC_PHASE_PLANNING})
		case event.GetProgress() != nil:
			bar.show(event.GetProgress())
		case event.GetFileFailed() != nil:
			bar.say(fmt.Sprintf("%s: %s", event.GetFileFailed().GetPath(), event.GetFileFailed().GetError()))
		case event.GetCompleted() != nil:
			done := event.GetCompleted()
			bar.end()
			fmt.Printf("In sync: %d files indexed, %d unchanged, %d removed, %d failed; revision %d.\n",
				done.GetIndexedFiles(), done.GetUnchangedFiles(), done.GetRemovedFiles(), done.GetFailedFiles(),
				done.GetIndexRevision())
		}
	}
	return nil
}

// answer searches, and reads the file of the best result.
func answer(ctx context.Context, client *memoryd.Client, question string) error {
	found, err := client.Search(ctx, &memorydv1.MemorySearchRequest{Query: question, MaxResults: proto.Int32(3)})
	if err != nil {
		return err
	}
	for _, lack := range found.GetInfo().GetDegradations() {
		fmt.Printf("Less than wanted: %s.\n", lack.GetReason())
	}
	if len(found.GetResults()) == 0 {
		fmt.Printf("Nothing found for %q: %s\n", question, found.GetInfo().GetEmptyExplanation())
		return nil
	}
	fmt.Printf("Found for %q:\n", question)
	for _, hit := range found.GetResults() {
		fmt.Printf("  %.2f  %s  %s\n", hit.GetScore(), hit.GetCitation(), firstWords(hit.GetSnippet()))
	}
	best := found.GetResults()[0]
	text, err := client.Get(ctx, &memorydv1.MemoryGetRequest{
		Path: best.GetPath(), StartLine: proto.Int32(best.GetStartLine()),
		LineCount: proto.Int32(best.GetEndLine() - best.GetStartLine() + 1),
	})
	if memoryd.ReasonOf(err) == "FILE_NOT_FOUND" {
		fmt.Printf("%s has gone since.\n", best.GetPath())
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Printf("Read %s, lines %d to %d of %d:\n", text.GetPath(), text.GetStartLine(), text.GetEndLine(), text.GetTotalLines())
	for line := range strings.Lines(text.GetText()) {
		fmt.Println("  |", strings.TrimRight(line, "\n"))
	}
	return nil
}

// askWhetherToFlush calls FlushDecision with the state of the session. A gateway does this before every turn.
func askWhetherToFlush(ctx context.Context, client *memoryd.Client) error {
	decision, err := client.FlushDecision(ctx, &memorydv1.FlushDecisionRequest{
		TotalTokens: proto.Int64(178_000), IncomingPromptTokens: 900, ContextWindowTokens: 200_000,
	})
	if err != nil {
		return err
	}
	verb := "Do not flush"
	if decision.GetFlush() {
		verb = "Flush to " + decision.GetTargetPath()
	}
	fmt.Printf("%s: %s (%d tokens, threshold %d).\n",
		verb, decision.GetReason(), decision.GetProjectedTokens(), decision.GetThresholdTokens())
	return nil
}

// remember appends a line to today's log and searches for it.
func remember(ctx context.Context, client *memoryd.Client, question string) error {
	mark := strings.ToLower(rand.Text()[:10])
	appended, err := client.Append(ctx, &memorydv1.MemoryAppendRequest{
		Text: fmt.Sprintf("- gateway example %s was asked: %s", mark, strings.Join(strings.Fields(question), " ")),
	})
	if err != nil {
		return err
	}
	fmt.Printf("Appended line %d of %s.\n", appended.GetEndLine(), appended.GetPath())
	// The revision is unset if the deadline was reached before the line was indexed. The search then does not wait.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	found, err := client.Search(ctx, &memorydv1.MemorySearchRequest{
		Query: "gateway example " + mark, MinRevision: appended.IndexRevision, MinScore: proto.Float64(0),
	})
	if err != nil {
		return err
	}
	for _, hit := range found.GetResults() {
		if hit.GetPath() == appended.GetPath() && strings.Contains(hit.GetSnippet(), mark) {
			fmt.Printf("Found it again at revision %d: %s.\n", found.GetInfo().GetIndexRevision(), hit.GetCitation())
			return nil
		}
	}
	return fmt.Errorf("the line that was appended to %s is not found: %s",
		appended.GetPath(), found.GetInfo().GetEmptyExplanation())
}

func firstWords(text string) string {
	const most = 60
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return string(runes)
}
