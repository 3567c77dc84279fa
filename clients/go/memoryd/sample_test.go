package memoryd_test

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// sample returns the responses of a daemon with docs/sample-workspace, for examples that run without a daemon. `make
// clients-go` also runs them with a real daemon.
type sample struct {
	memorydv1.UnimplementedMemoryServiceServer

	lock sync.Mutex
	keys map[string]bool
}

const (
	engine     = "memory/projects/booking-engine.md"
	engineLine = "- `ERR_HOLD_2203`: a hold was confirmed after its end. The customer has to choose again; no money was taken."
)

// daemon returns the address for the examples: MEMORYD_TEST_ADDRESS, or a server in this process.
var daemon = sync.OnceValue(func() []memoryd.Option {
	if place := os.Getenv("MEMORYD_TEST_ADDRESS"); place != "" {
		return []memoryd.Option{memoryd.WithAddress(place)}
	}
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	memorydv1.RegisterMemoryServiceServer(server, &sample{keys: map[string]bool{}})
	go func() { _ = server.Serve(listener) }()
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	})
	return []memoryd.Option{memoryd.WithAddress("unix:/in-this-process"), memoryd.WithDialOptions(dial)}
})

func (s *sample) MemorySearch(
	_ context.Context, request *memorydv1.MemorySearchRequest,
) (*memorydv1.MemorySearchResponse, error) {
	if request.GetMaxResults() < 0 {
		const description = "is -1; it must be at least 1 (leave it unset for 6)"
		return nil, explained(codes.InvalidArgument, "INVALID_REQUEST", "max_results: "+description,
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: "max_results", Description: description},
			}})
	}
	if request.MinRevision != nil {
		hit := &memorydv1.SearchResult{Path: "memory/examples.md"}
		return &memorydv1.MemorySearchResponse{Results: []*memorydv1.SearchResult{hit}}, nil
	}
	hit := &memorydv1.SearchResult{Path: engine, StartLine: 5, EndLine: 24, Citation: engine + "#L5-L24"}
	return &memorydv1.MemorySearchResponse{Results: []*memorydv1.SearchResult{hit}}, nil
}

func (s *sample) MemoryRecall(
	_ context.Context, request *memorydv1.MemoryRecallRequest,
) (*memorydv1.MemoryRecallResponse, error) {
	if request.GetText() == "thank you!" {
		return &memorydv1.MemoryRecallResponse{SilentReason: memorydv1.RecallSilentReason_RECALL_SILENT_REASON_NO_QUERY}, nil
	}
	return &memorydv1.MemoryRecallResponse{
		Block: "<relevant-memories>", Items: []*memorydv1.RecalledItem{{Path: engine, StartLine: 5, EndLine: 24}},
	}, nil
}

func (s *sample) MemoryGet(_ context.Context, request *memorydv1.MemoryGetRequest) (*memorydv1.MemoryGetResponse, error) {
	if request.GetPath() != engine {
		return nil, explained(codes.NotFound, "FILE_NOT_FOUND", "there is no such file")
	}
	return &memorydv1.MemoryGetResponse{
		Path: engine, Text: engineLine, StartLine: 18, EndLine: 18, TotalLines: 24, NextStartLine: 19,
	}, nil
}

func (s *sample) MemoryAppend(
	_ context.Context, request *memorydv1.MemoryAppendRequest,
) (*memorydv1.MemoryAppendResponse, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	known := s.keys[request.GetIdempotencyKey()]
	s.keys[request.GetIdempotencyKey()] = true
	return &memorydv1.MemoryAppendResponse{
		Path: request.GetPath(), IndexRevision: proto.Int64(2), AlreadyAppended: known,
	}, nil
}

func (s *sample) FlushDecision(
	_ context.Context, request *memorydv1.FlushDecisionRequest,
) (*memorydv1.FlushDecisionResponse, error) {
	const threshold = 176_000
	decision := &memorydv1.FlushDecisionResponse{
		ThresholdTokens: threshold, RemainingTokens: threshold - request.GetTotalTokens(),
		Reason: memorydv1.FlushReason_FLUSH_REASON_BELOW_THRESHOLD,
	}
	if request.GetTotalTokens() >= threshold {
		decision.Flush, decision.Reason = true, memorydv1.FlushReason_FLUSH_REASON_TOKEN_THRESHOLD
	}
	return decision, nil
}

func (s *sample) Sync(_ *memorydv1.SyncRequest, stream grpc.ServerStreamingServer[memorydv1.SyncResponse]) error {
	for _, event := range []*memorydv1.SyncResponse{
		{Event: &memorydv1.SyncResponse_Started{Started: &memorydv1.SyncStarted{}}},
		{Event: &memorydv1.SyncResponse_Progress{Progress: &memorydv1.SyncProgress{TotalFiles: 1, CompletedFiles: 1}}},
		{Event: &memorydv1.SyncResponse_Completed{Completed: &memorydv1.SyncCompleted{IndexRevision: 1}}},
	} {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	return nil
}

func (s *sample) WatchIndex(
	_ *memorydv1.WatchIndexRequest, stream grpc.ServerStreamingServer[memorydv1.WatchIndexResponse],
) error {
	for {
		if err := stream.Send(&memorydv1.WatchIndexResponse{AgentId: "main"}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func explained(code codes.Code, reason, message string, more ...*errdetails.BadRequest) error {
	whole, err := status.New(code, message).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "memoryd"})
	for _, each := range more {
		if err == nil {
			whole, err = whole.WithDetails(each)
		}
	}
	if err != nil {
		return err
	}
	return whole.Err()
}
