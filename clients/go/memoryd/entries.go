package memoryd

import (
	"context"
	"crypto/rand"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// The deadlines that the entry service documents.
const (
	rememberDeadline = 10 * time.Second
	lookUpDeadline   = 5 * time.Second
	suggestDeadline  = time.Second
)

// Entries calls the entry service of one daemon: short texts that an agent stores and recalls by meaning. Where entries
// are switched off, every call fails with UNIMPLEMENTED.
type Entries struct {
	client  *Client
	service memorydv1.EntryServiceClient
}

// Remember stores a text, unless an entry says the same. Where the request has no IdempotencyKey, a random one is sent
// in its stead, so that trying again is safe. Its deadline is 10 seconds.
func (e *Entries) Remember(
	ctx context.Context, request *memorydv1.RememberRequest, options ...grpc.CallOption,
) (*memorydv1.RememberResponse, error) {
	if request != nil && request.GetIdempotencyKey() == "" {
		request = proto.CloneOf(request)
		request.IdempotencyKey = rand.Text()
	}
	return call(ctx, e.client, e.service.Remember, rememberDeadline, request, options)
}

// Recall finds the entries nearest to a text, best first. Its deadline is 5 seconds.
func (e *Entries) Recall(
	ctx context.Context, request *memorydv1.RecallRequest, options ...grpc.CallOption,
) (*memorydv1.RecallResponse, error) {
	return call(ctx, e.client, e.service.Recall, lookUpDeadline, request, options)
}

// Forget deletes an entry by its id, or the one that a text clearly means. Its deadline is 5 seconds.
func (e *Entries) Forget(
	ctx context.Context, request *memorydv1.ForgetRequest, options ...grpc.CallOption,
) (*memorydv1.ForgetResponse, error) {
	return call(ctx, e.client, e.service.Forget, lookUpDeadline, request, options)
}

// List lists a page of an agent's entries, newest first. Its deadline is 5 seconds.
func (e *Entries) List(
	ctx context.Context, request *memorydv1.ListEntriesRequest, options ...grpc.CallOption,
) (*memorydv1.ListEntriesResponse, error) {
	return call(ctx, e.client, e.service.ListEntries, lookUpDeadline, request, options)
}

// SuggestCapture tells which of a turn's messages would be worth storing, and stores nothing. Its deadline is 1 second.
func (e *Entries) SuggestCapture(
	ctx context.Context, request *memorydv1.SuggestCaptureRequest, options ...grpc.CallOption,
) (*memorydv1.SuggestCaptureResponse, error) {
	return call(ctx, e.client, e.service.SuggestCapture, suggestDeadline, request, options)
}

// RecallBlock recalls what concerns a prompt, as a block to put before it. Its deadline is 5 seconds.
func (e *Entries) RecallBlock(
	ctx context.Context, request *memorydv1.RecallBlockRequest, options ...grpc.CallOption,
) (*memorydv1.RecallBlockResponse, error) {
	return call(ctx, e.client, e.service.RecallBlock, lookUpDeadline, request, options)
}
