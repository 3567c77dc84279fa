package memoryd

import (
	"context"
	"crypto/rand"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// The deadlines that the service documents.
const (
	searchDeadline  = 5 * time.Second
	getDeadline     = 2 * time.Second
	statusDeadline  = 2 * time.Second
	probeDeadline   = 10 * time.Second
	flushDeadline   = time.Second
	appendDeadline  = 5 * time.Second
	forgetDeadline  = 10 * time.Second
	contextDeadline = 2 * time.Second
	archiveDeadline = 10 * time.Second
	listDeadline    = 2 * time.Second
)

// Search finds the parts of an agent's memory that answer a question, best first. Its deadline is 5 seconds.
func (c *Client) Search(
	ctx context.Context, request *memorydv1.MemorySearchRequest, options ...grpc.CallOption,
) (*memorydv1.MemorySearchResponse, error) {
	return call(ctx, c, c.service.MemorySearch, searchDeadline, request, options)
}

// Get reads a line range of a memory file. Its deadline is 2 seconds.
func (c *Client) Get(
	ctx context.Context, request *memorydv1.MemoryGetRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryGetResponse, error) {
	return call(ctx, c, c.service.MemoryGet, getDeadline, request, options)
}

// Status tells how an agent's memory is doing. Its deadline is 2 seconds, and 10 with Probe. A nil request asks about
// the agent "main", as in every call whose request need not say more.
func (c *Client) Status(
	ctx context.Context, request *memorydv1.StatusRequest, options ...grpc.CallOption,
) (*memorydv1.StatusResponse, error) {
	documented := statusDeadline
	if request.GetProbe() {
		documented = probeDeadline
	}
	return call(ctx, c, c.service.Status, documented, request, options)
}

// Sync starts a sync run, or joins the one under way, and follows it. The last event before the end is Completed. There
// is no deadline but that of the context. Closing the stream, or ending the context, leaves the run to itself unless
// the request's OnDisconnect says otherwise.
func (c *Client) Sync(
	ctx context.Context, request *memorydv1.SyncRequest, options ...grpc.CallOption,
) (*Stream[memorydv1.SyncResponse], error) {
	return follow(ctx, c.service.Sync, request, options)
}

// Watch follows an agent's index without starting anything: its state at once, then each change, until the stream is
// closed or the context ends. There is no deadline but that of the context.
func (c *Client) Watch(
	ctx context.Context, request *memorydv1.WatchIndexRequest, options ...grpc.CallOption,
) (*Stream[memorydv1.WatchIndexResponse], error) {
	return follow(ctx, c.service.WatchIndex, request, options)
}

// FlushDecision decides whether the agent should write lasting notes before its context is compacted. Its deadline is 1
// second.
func (c *Client) FlushDecision(
	ctx context.Context, request *memorydv1.FlushDecisionRequest, options ...grpc.CallOption,
) (*memorydv1.FlushDecisionResponse, error) {
	return call(ctx, c, c.service.FlushDecision, flushDeadline, request, options)
}

// Append appends text to today's log, or to the file that the request names. Where the request has no IdempotencyKey, a
// random one is sent in its stead, so that trying again is safe. Its deadline is 5 seconds.
func (c *Client) Append(
	ctx context.Context, request *memorydv1.MemoryAppendRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryAppendResponse, error) {
	if request != nil && request.GetIdempotencyKey() == "" {
		request = proto.CloneOf(request)
		request.IdempotencyKey = rand.Text()
	}
	return call(ctx, c, c.service.MemoryAppend, appendDeadline, request, options)
}

// Forget removes a file, a session or a text from every derived store, and counts what it removed. Its deadline is 10
// seconds.
func (c *Client) Forget(
	ctx context.Context, request *memorydv1.MemoryForgetRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryForgetResponse, error) {
	return call(ctx, c, c.service.MemoryForget, forgetDeadline, request, options)
}

// SessionContext tells which files a session loads at its start, with their text. Its deadline is 2 seconds.
func (c *Client) SessionContext(
	ctx context.Context, request *memorydv1.SessionContextRequest, options ...grpc.CallOption,
) (*memorydv1.SessionContextResponse, error) {
	return call(ctx, c, c.service.SessionContext, contextDeadline, request, options)
}

// SessionArchive turns the last messages of a transcript into a memory file; trying again is safe. Its deadline is 10
// seconds.
func (c *Client) SessionArchive(
	ctx context.Context, request *memorydv1.SessionArchiveRequest, options ...grpc.CallOption,
) (*memorydv1.SessionArchiveResponse, error) {
	return call(ctx, c, c.service.SessionArchive, archiveDeadline, request, options)
}

// ListAgents lists a page of the agents that the caller may use. Its deadline is 2 seconds.
func (c *Client) ListAgents(
	ctx context.Context, request *memorydv1.ListAgentsRequest, options ...grpc.CallOption,
) (*memorydv1.ListAgentsResponse, error) {
	return call(ctx, c, c.service.ListAgents, listDeadline, request, options)
}

// ListFiles lists a page of an agent's memory files, each with whether it can be found. Its deadline is 2 seconds.
func (c *Client) ListFiles(
	ctx context.Context, request *memorydv1.ListFilesRequest, options ...grpc.CallOption,
) (*memorydv1.ListFilesResponse, error) {
	return call(ctx, c, c.service.ListFiles, listDeadline, request, options)
}
