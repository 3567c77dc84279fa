package memoryd

import (
	"context"
	"crypto/rand"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// Default deadlines, as in the protos.
const (
	rememberDeadline = 10 * time.Second
	lookUpDeadline   = 5 * time.Second
	suggestDeadline  = time.Second
)

// Entries calls the entry service of a daemon: short texts that an agent stores and finds by their meaning. If the
// service is disabled, every call fails with UNIMPLEMENTED.
type Entries struct {
	client  *Client
	service memorydv1.EntryServiceClient
}

// Remember stores a text, unless an equivalent entry exists. If the request has no IdempotencyKey, a random one is
// sent, so that retries are safe. The default deadline is 10 seconds.
func (e *Entries) Remember(
	ctx context.Context, request *memorydv1.RememberRequest, options ...grpc.CallOption,
) (*memorydv1.RememberResponse, error) {
	if request != nil && request.GetIdempotencyKey() == "" {
		request = proto.CloneOf(request)
		request.IdempotencyKey = rand.Text()
	}
	return call(ctx, e.client, e.service.Remember, rememberDeadline, request, options)
}

// Recall returns the entries that are most similar to a text, best first. The default deadline is 5 seconds.
func (e *Entries) Recall(
	ctx context.Context, request *memorydv1.RecallRequest, options ...grpc.CallOption,
) (*memorydv1.RecallResponse, error) {
	return call(ctx, e.client, e.service.Recall, lookUpDeadline, request, options)
}

// Forget deletes one entry, given its ID or a text that clearly matches it. The default deadline is 5 seconds.
func (e *Entries) Forget(
	ctx context.Context, request *memorydv1.ForgetRequest, options ...grpc.CallOption,
) (*memorydv1.ForgetResponse, error) {
	return call(ctx, e.client, e.service.Forget, lookUpDeadline, request, options)
}

// List returns one page of an agent's entries, newest first. The default deadline is 5 seconds.
func (e *Entries) List(
	ctx context.Context, request *memorydv1.ListEntriesRequest, options ...grpc.CallOption,
) (*memorydv1.ListEntriesResponse, error) {
	return call(ctx, e.client, e.service.ListEntries, lookUpDeadline, request, options)
}

// SuggestCapture returns which of a turn's messages are worth storing. It stores nothing. The default deadline is 1
// second.
func (e *Entries) SuggestCapture(
	ctx context.Context, request *memorydv1.SuggestCaptureRequest, options ...grpc.CallOption,
) (*memorydv1.SuggestCaptureResponse, error) {
	return call(ctx, e.client, e.service.SuggestCapture, suggestDeadline, request, options)
}

// RecallBlock returns the entries that are relevant to a prompt, as a text to insert before it. The default deadline is
// 5 seconds.
func (e *Entries) RecallBlock(
	ctx context.Context, request *memorydv1.RecallBlockRequest, options ...grpc.CallOption,
) (*memorydv1.RecallBlockResponse, error) {
	return call(ctx, e.client, e.service.RecallBlock, lookUpDeadline, request, options)
}
