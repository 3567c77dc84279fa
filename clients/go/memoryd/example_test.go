package memoryd_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// In a program, Connect without options finds the daemon.
func Example() {
	client, err := memoryd.Connect(daemon()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	inSync(client)

	found, err := client.Search(context.Background(), &memorydv1.MemorySearchRequest{Query: "How do I fix ERR_CACHE_4017?"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.GetResults()[0].GetCitation())
	// Output: memory/projects/booking-engine.md#L5-L24
}

// A daemon on another machine, with a token and with TLS.
func ExampleConnect() {
	client, err := memoryd.Connect(
		memoryd.WithAddress("memory.example:7627"),
		memoryd.WithToken("memoryd_..."),
		memoryd.WithTLS(memoryd.TLS{CAFile: "~/memoryd/ca.pem"}),
		memoryd.WithTimeout(20*time.Second),
		memoryd.WithKeepalive(30*time.Second),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// The block is empty if the memory contains nothing about the turn.
func ExampleClient_Recall() {
	client, err := memoryd.Connect(daemon()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	inSync(client)

	for _, text := range []string{"How do I fix ERR_CACHE_4017?", "thank you!"} {
		recalled, err := client.Recall(context.Background(), &memorydv1.MemoryRecallRequest{
			Text: text, Filter: &memorydv1.MemoryFilter{PathPrefixes: []string{"memory/projects/"}},
		})
		if err != nil {
			log.Fatal(err)
		}
		if recalled.GetBlock() == "" {
			fmt.Println("nothing:", recalled.GetSilentReason())
			continue
		}
		fmt.Println(recalled.GetItems()[0].GetPath())
	}
	// Output:
	// memory/projects/booking-engine.md
	// nothing: RECALL_SILENT_REASON_NO_QUERY
}

func ExampleClient_Get() {
	client, err := memoryd.Connect(daemon()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	text, err := client.Get(context.Background(), &memorydv1.MemoryGetRequest{
		Path: "memory/projects/booking-engine.md", StartLine: proto.Int32(18), LineCount: proto.Int32(1),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text.GetText())
	fmt.Printf("line %d of %d\n", text.GetEndLine(), text.GetTotalLines())
	// Output:
	// - `ERR_HOLD_2203`: a hold was confirmed after its end. The customer has to choose again; no money was taken.
	// line 18 of 24
}

func ExampleClient_Sync() {
	client, err := memoryd.Connect(daemon()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	stream, err := client.Sync(context.Background(), &memorydv1.SyncRequest{})
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range stream.All() {
		if err != nil {
			log.Fatal(err)
		}
		switch event := event.GetEvent().(type) {
		case *memorydv1.SyncResponse_Progress:
			// event.Progress is the complete progress of the run; each event replaces the previous one.
		case *memorydv1.SyncResponse_FileFailed:
			fmt.Println("not indexed:", event.FileFailed.GetPath(), event.FileFailed.GetError())
		case *memorydv1.SyncResponse_Completed:
			fmt.Println("in sync,", event.Completed.GetFailedFiles(), "files failed")
		}
	}
	// Output: in sync, 0 files failed
}

// Leaving the loop ends the call, and so does cancelling the context.
func ExampleClient_Watch() {
	client, err := memoryd.Connect(daemon()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	stream, err := client.Watch(context.Background(), &memorydv1.WatchIndexRequest{})
	if err != nil {
		log.Fatal(err)
	}
	for state, err := range stream.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("the index of", state.GetAgentId())
		break
	}
	// Output: the index of main
}

// With the caller's own key, a retry after a crash of the caller appends nothing. With min_revision, the search waits
// until the line is indexed.
func ExampleClient_Append() {
	ctx := context.Background()
	client, err := memoryd.Connect(daemon()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	key := "rollback-" + rand.Text()
	request := &memorydv1.MemoryAppendRequest{
		Path: "memory/examples.md", Text: "- rolled back Zephyrine 2.4.1", IdempotencyKey: key,
	}
	for range 2 {
		appended, err := client.Append(ctx, request)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("already there:", appended.GetAlreadyAppended())
		found, err := client.Search(ctx, &memorydv1.MemorySearchRequest{
			Query: "Zephyrine", MinRevision: appended.IndexRevision,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("found in:", found.GetResults()[0].GetPath())
	}
	// Output:
	// already there: false
	// found in: memory/examples.md
	// already there: true
	// found in: memory/examples.md
}

func ExampleClient_FlushDecision() {
	client, err := memoryd.Connect(daemon()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for _, tokens := range []int64{120_000, 180_000} {
		decision, err := client.FlushDecision(context.Background(), &memorydv1.FlushDecisionRequest{
			TotalTokens: proto.Int64(tokens), ContextWindowTokens: 200_000,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(decision.GetFlush(), decision.GetReason(), decision.GetRemainingTokens())
	}
	// Output:
	// false FLUSH_REASON_BELOW_THRESHOLD 56000
	// true FLUSH_REASON_TOKEN_THRESHOLD -4000
}

func ExampleError() {
	client, err := memoryd.Connect(daemon()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_, err = client.Search(context.Background(), &memorydv1.MemorySearchRequest{Query: "x", MaxResults: proto.Int32(-1)})
	var failure *memoryd.Error
	if errors.As(err, &failure) {
		fmt.Println(failure.Code, failure.Reason)
		for _, violation := range failure.Violations {
			fmt.Printf("%s: %s\n", violation.Field, violation.Description)
		}
	}

	_, err = client.Get(context.Background(), &memorydv1.MemoryGetRequest{Path: "memory/2031-01-01.md"})
	if memoryd.ReasonOf(err) == "FILE_NOT_FOUND" {
		fmt.Println("nothing was written that day")
	}
	// Output:
	// InvalidArgument INVALID_REQUEST
	// max_results: is -1; it must be at least 1 (leave it unset for 6)
	// nothing was written that day
}

// inSync waits until the index is up to date, so that the examples find the files.
func inSync(client *memoryd.Client) {
	stream, err := client.Sync(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, err := range stream.All() {
		if err != nil {
			log.Fatal(err)
		}
	}
}
