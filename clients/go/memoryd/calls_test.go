package memoryd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// calls lists every unary method with its default deadline, a request, a recognizable response, and a function that
// calls it.
var calls = map[string]struct {
	method   string
	deadline time.Duration
	answer   proto.Message
	request  proto.Message
	call     func(context.Context, *memoryd.Client) (proto.Message, error)
}{
	"search": {
		"MemorySearch", 5 * time.Second, &memorydv1.MemorySearchResponse{Info: &memorydv1.SearchInfo{IndexRevision: 7}},
		&memorydv1.MemorySearchRequest{Query: "q"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Search(ctx, &memorydv1.MemorySearchRequest{Query: "q"})
		},
	},
	"search with a filter": {
		"MemorySearch", 5 * time.Second, &memorydv1.MemorySearchResponse{},
		&memorydv1.MemorySearchRequest{Query: "q", Filter: filter()},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Search(ctx, &memorydv1.MemorySearchRequest{Query: "q", Filter: filter()})
		},
	},
	"explain miss": {
		"ExplainMiss", 10 * time.Second, &memorydv1.ExplainMissResponse{Path: "p", Explanation: "e"},
		&memorydv1.ExplainMissRequest{Search: &memorydv1.MemorySearchRequest{Query: "q"}, Path: "p"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			search := &memorydv1.MemorySearchRequest{Query: "q"}
			return c.ExplainMiss(ctx, &memorydv1.ExplainMissRequest{Search: search, Path: "p"})
		},
	},
	"recall": {
		"MemoryRecall", 2 * time.Second, &memorydv1.MemoryRecallResponse{Block: "b", TokensUsed: 1},
		&memorydv1.MemoryRecallRequest{Text: "t", SessionKey: "k", RememberShown: true, Filter: filter()},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			request := &memorydv1.MemoryRecallRequest{Text: "t", SessionKey: "k", RememberShown: true, Filter: filter()}
			return c.Recall(ctx, request)
		},
	},
	"get": {
		"MemoryGet", 2 * time.Second, &memorydv1.MemoryGetResponse{Text: "t"}, &memorydv1.MemoryGetRequest{Path: "p"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Get(ctx, &memorydv1.MemoryGetRequest{Path: "p"})
		},
	},
	"status": {
		"Status", 2 * time.Second, &memorydv1.StatusResponse{AgentId: "a"}, &memorydv1.StatusRequest{},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) { return c.Status(ctx, nil) },
	},
	"status with a probe": {
		"Status", 10 * time.Second, &memorydv1.StatusResponse{AgentId: "a"}, &memorydv1.StatusRequest{Probe: true},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Status(ctx, &memorydv1.StatusRequest{Probe: true})
		},
	},
	"flush decision": {
		"FlushDecision", time.Second, &memorydv1.FlushDecisionResponse{Flush: true},
		&memorydv1.FlushDecisionRequest{TotalTokens: proto.Int64(0)},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.FlushDecision(ctx, &memorydv1.FlushDecisionRequest{TotalTokens: proto.Int64(0)})
		},
	},
	"append": {
		"MemoryAppend", 5 * time.Second, &memorydv1.MemoryAppendResponse{StartLine: 3},
		&memorydv1.MemoryAppendRequest{Text: "t", IdempotencyKey: "k"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Append(ctx, &memorydv1.MemoryAppendRequest{Text: "t", IdempotencyKey: "k"})
		},
	},
	"write": {
		"MemoryWrite", 5 * time.Second, &memorydv1.MemoryWriteResponse{VersionId: "v"},
		&memorydv1.MemoryWriteRequest{Path: "p", IdempotencyKey: "k"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Write(ctx, &memorydv1.MemoryWriteRequest{Path: "p", IdempotencyKey: "k"})
		},
	},
	"move": {
		"MemoryMove", 5 * time.Second, &memorydv1.MemoryMoveResponse{VersionId: "v"},
		&memorydv1.MemoryMoveRequest{Path: "p", NewPath: "n", IdempotencyKey: "k"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Move(ctx, &memorydv1.MemoryMoveRequest{Path: "p", NewPath: "n", IdempotencyKey: "k"})
		},
	},
	"history": {
		"MemoryHistory", 5 * time.Second, &memorydv1.MemoryHistoryResponse{NextPageToken: "n"},
		&memorydv1.MemoryHistoryRequest{},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) { return c.History(ctx, nil) },
	},
	"restore": {
		"MemoryRestore", 5 * time.Second, &memorydv1.MemoryRestoreResponse{VersionId: "w"},
		&memorydv1.MemoryRestoreRequest{VersionId: "v", IdempotencyKey: "k"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Restore(ctx, &memorydv1.MemoryRestoreRequest{VersionId: "v", IdempotencyKey: "k"})
		},
	},
	"forget": {
		"MemoryForget", 10 * time.Second, &memorydv1.MemoryForgetResponse{Chunks: 2},
		&memorydv1.MemoryForgetRequest{Target: &memorydv1.MemoryForgetRequest_Path{Path: "p"}},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			target := &memorydv1.MemoryForgetRequest_Path{Path: "p"}
			return c.Forget(ctx, &memorydv1.MemoryForgetRequest{Target: target})
		},
	},
	"session context": {
		"SessionContext", 2 * time.Second, &memorydv1.SessionContextResponse{MainSession: true},
		&memorydv1.SessionContextRequest{SessionKey: "k"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.SessionContext(ctx, &memorydv1.SessionContextRequest{SessionKey: "k"})
		},
	},
	"session archive": {
		"SessionArchive", 10 * time.Second, &memorydv1.SessionArchiveResponse{Messages: 15},
		&memorydv1.SessionArchiveRequest{Transcript: "t"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.SessionArchive(ctx, &memorydv1.SessionArchiveRequest{Transcript: "t"})
		},
	},
	"session append": {
		"SessionAppend", 5 * time.Second, &memorydv1.SessionAppendResponse{Records: 7},
		&memorydv1.SessionAppendRequest{SessionId: "s", Records: []string{"{}"}, ExpectedRecords: proto.Int64(6)},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.SessionAppend(ctx, &memorydv1.SessionAppendRequest{
				SessionId: "s", Records: []string{"{}"}, ExpectedRecords: proto.Int64(6),
			})
		},
	},
	"list agents": {
		"ListAgents", 2 * time.Second, &memorydv1.ListAgentsResponse{NextPageToken: "n"}, &memorydv1.ListAgentsRequest{},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) { return c.ListAgents(ctx, nil) },
	},
	"list files": {
		"ListFiles", 2 * time.Second, &memorydv1.ListFilesResponse{NextPageToken: "n"},
		&memorydv1.ListFilesRequest{PageSize: 3, PageToken: "p", Filter: filter()},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.ListFiles(ctx, &memorydv1.ListFilesRequest{PageSize: 3, PageToken: "p", Filter: filter()})
		},
	},
	"remember": {
		"Remember", 10 * time.Second, &memorydv1.RememberResponse{Action: memorydv1.RememberAction_REMEMBER_ACTION_STORED},
		&memorydv1.RememberRequest{Text: "t", IdempotencyKey: "k"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Entries().Remember(ctx, &memorydv1.RememberRequest{Text: "t", IdempotencyKey: "k"})
		},
	},
	"recall entries": {
		"Recall", 5 * time.Second, &memorydv1.RecallResponse{Entries: []*memorydv1.ScoredEntry{{Score: 1}}},
		&memorydv1.RecallRequest{Query: "q"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Entries().Recall(ctx, &memorydv1.RecallRequest{Query: "q"})
		},
	},
	"forget an entry": {
		"Forget", 5 * time.Second, &memorydv1.ForgetResponse{Action: memorydv1.ForgetAction_FORGET_ACTION_DELETED},
		&memorydv1.ForgetRequest{Target: &memorydv1.ForgetRequest_EntryId{EntryId: "e"}},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			target := &memorydv1.ForgetRequest_EntryId{EntryId: "e"}
			return c.Entries().Forget(ctx, &memorydv1.ForgetRequest{Target: target})
		},
	},
	"list entries": {
		"ListEntries", 5 * time.Second, &memorydv1.ListEntriesResponse{Total: 4}, &memorydv1.ListEntriesRequest{},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) { return c.Entries().List(ctx, nil) },
	},
	"suggest capture": {
		"SuggestCapture", time.Second, &memorydv1.SuggestCaptureResponse{AutoCapture: true},
		&memorydv1.SuggestCaptureRequest{UserMessages: []string{"m"}},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Entries().SuggestCapture(ctx, &memorydv1.SuggestCaptureRequest{UserMessages: []string{"m"}})
		},
	},
	"recall block": {
		"RecallBlock", 5 * time.Second, &memorydv1.RecallBlockResponse{Block: "b"},
		&memorydv1.RecallBlockRequest{Prompt: "p"},
		func(ctx context.Context, c *memoryd.Client) (proto.Message, error) {
			return c.Entries().RecallBlock(ctx, &memorydv1.RecallBlockRequest{Prompt: "p"})
		},
	},
}

func filter() *memorydv1.MemoryFilter {
	return &memorydv1.MemoryFilter{
		Since: "2026-05", PathPrefixes: []string{"projects/"},
		FrontMatter: []*memorydv1.FrontMatterCondition{{Key: "tags", Values: []string{"billing", "cache"}}},
	}
}

func TestACallCarriesItsRequestAndItsDocumentedDeadline(t *testing.T) {
	alone(t)
	for name, each := range calls {
		t.Run(name, func(t *testing.T) {
			server := &fake{answers: map[string]proto.Message{each.method: each.answer}}
			client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
			answer, err := each.call(t.Context(), client)
			if err != nil || !proto.Equal(answer, each.answer) {
				t.Fatalf("answered %v, %v", answer, err)
			}
			asked := server.last(t)
			if asked.method != each.method || !proto.Equal(asked.request, each.request) {
				t.Fatalf("%s was sent as %s", asked.request, asked.method)
			}
			checkRemaining(t, asked, each.deadline)
		})
	}
}

func TestEveryUnaryMethodOfTheContractIsInTheTable(t *testing.T) {
	called := map[string]bool{}
	for _, each := range calls {
		called[each.method] = true
	}
	described := append(memorydv1.MemoryService_ServiceDesc.Methods, memorydv1.EntryService_ServiceDesc.Methods...)
	for _, method := range described {
		if !called[method.MethodName] {
			t.Errorf("%s is not called", method.MethodName)
		}
	}
}

func TestTheClientsTimeoutReplacesTheDocumentedDeadline(t *testing.T) {
	alone(t)
	for name, each := range calls {
		t.Run(name, func(t *testing.T) {
			server := &fake{answers: map[string]proto.Message{each.method: each.answer}}
			client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)), memoryd.WithTimeout(time.Minute))
			if _, err := each.call(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			checkRemaining(t, server.last(t), time.Minute)
		})
	}
}

func TestTheContextsDeadlineCountsBeforeAnyOther(t *testing.T) {
	alone(t)
	for _, wanted := range []time.Duration{time.Hour, 1500 * time.Millisecond} {
		server := &fake{answers: map[string]proto.Message{"MemoryGet": &memorydv1.MemoryGetResponse{}}}
		client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)), memoryd.WithTimeout(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), wanted)
		defer cancel()
		if _, err := client.Get(ctx, nil); err != nil {
			t.Fatal(err)
		}
		checkRemaining(t, server.last(t), wanted)
	}
}

func checkRemaining(t *testing.T, asked asked, wanted time.Duration) {
	t.Helper()
	if !asked.limited || asked.remaining > wanted || asked.remaining < wanted-900*time.Millisecond {
		t.Errorf("%s was sent with %v left (limited: %v), not %v", asked.method, asked.remaining, asked.limited, wanted)
	}
}

func TestADeadlineThatPassesEndsTheCall(t *testing.T) {
	alone(t)
	held := make(chan struct{})
	server := &fake{fail: func(int) error { <-held; return nil }}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)), memoryd.WithTimeout(50*time.Millisecond))
	defer close(held)
	_, err := client.Get(t.Context(), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ended with %v", err)
	}
}

func TestAWriteGetsARandomKeyWhereItHasNone(t *testing.T) {
	alone(t)
	server := &fake{answers: map[string]proto.Message{
		"MemoryAppend": &memorydv1.MemoryAppendResponse{}, "Remember": &memorydv1.RememberResponse{},
	}}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
	sent := map[string]bool{}
	appended, remembered := &memorydv1.MemoryAppendRequest{Text: "a"}, &memorydv1.RememberRequest{Text: "b"}
	for range 2 {
		if _, err := client.Append(t.Context(), appended); err != nil {
			t.Fatal(err)
		}
		sent[server.last(t).request.(*memorydv1.MemoryAppendRequest).GetIdempotencyKey()] = true
		if _, err := client.Entries().Remember(t.Context(), remembered); err != nil {
			t.Fatal(err)
		}
		sent[server.last(t).request.(*memorydv1.RememberRequest).GetIdempotencyKey()] = true
	}
	if len(sent) != 4 || sent[""] {
		t.Errorf("the keys were %v", sent)
	}
	if appended.GetIdempotencyKey() != "" || remembered.GetIdempotencyKey() != "" {
		t.Error("the caller's own message was changed")
	}
}

func TestAnEditGetsARandomKeyIfItHasNone(t *testing.T) {
	alone(t)
	server := &fake{answers: map[string]proto.Message{
		"MemoryWrite": &memorydv1.MemoryWriteResponse{}, "MemoryMove": &memorydv1.MemoryMoveResponse{},
		"MemoryRestore": &memorydv1.MemoryRestoreResponse{},
	}}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
	written, moved := &memorydv1.MemoryWriteRequest{Path: "a"}, &memorydv1.MemoryMoveRequest{Path: "a"}
	restored := &memorydv1.MemoryRestoreRequest{VersionId: "v"}
	for range 2 {
		_, err := client.Write(t.Context(), written)
		_, moveErr := client.Move(t.Context(), moved)
		_, restoreErr := client.Restore(t.Context(), restored)
		if err := errors.Join(err, moveErr, restoreErr); err != nil {
			t.Fatal(err)
		}
	}
	sent := map[string]bool{}
	for _, each := range server.asked {
		sent[each.request.(interface{ GetIdempotencyKey() string }).GetIdempotencyKey()] = true
	}
	if len(sent) != 6 || sent[""] {
		t.Errorf("the keys were %v", sent)
	}
	if written.GetIdempotencyKey()+moved.GetIdempotencyKey()+restored.GetIdempotencyKey() != "" {
		t.Error("the caller's own message was changed")
	}
}

func TestAllTriesOfAnAppendCarryTheSameKey(t *testing.T) {
	alone(t)
	server := &fake{
		answers: map[string]proto.Message{"MemoryAppend": &memorydv1.MemoryAppendResponse{}}, fail: failing(2),
	}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
	if _, err := client.Append(t.Context(), &memorydv1.MemoryAppendRequest{Text: "a"}); err != nil {
		t.Fatal(err)
	}
	if len(server.asked) != 3 {
		t.Fatalf("tried %d times", len(server.asked))
	}
	first := server.asked[0].request.(*memorydv1.MemoryAppendRequest).GetIdempotencyKey()
	for _, each := range server.asked {
		if key := each.request.(*memorydv1.MemoryAppendRequest).GetIdempotencyKey(); key != first || key == "" {
			t.Errorf("the keys %q and %q of one append differ", first, key)
		}
	}
}
