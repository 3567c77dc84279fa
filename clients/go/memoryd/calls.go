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
	searchDeadline  = 5 * time.Second
	explainDeadline = 10 * time.Second
	recallDeadline  = 2 * time.Second
	getDeadline     = 2 * time.Second
	statusDeadline  = 2 * time.Second
	probeDeadline   = 10 * time.Second
	flushDeadline   = time.Second
	appendDeadline  = 5 * time.Second
	editDeadline    = 5 * time.Second
	forgetDeadline  = 10 * time.Second
	contextDeadline = 2 * time.Second
	archiveDeadline = 10 * time.Second
	listDeadline    = 2 * time.Second
)

// Search searches an agent's memory and returns the results, best first. The default deadline is 5 seconds.
func (c *Client) Search(
	ctx context.Context, request *memorydv1.MemorySearchRequest, options ...grpc.CallOption,
) (*memorydv1.MemorySearchResponse, error) {
	return call(ctx, c, c.service.MemorySearch, searchDeadline, request, options)
}

// ExplainMiss runs a search and returns the step that leaves out a file or a line, or its rank if the search finds it.
// The default deadline is 10 seconds.
func (c *Client) ExplainMiss(
	ctx context.Context, request *memorydv1.ExplainMissRequest, options ...grpc.CallOption,
) (*memorydv1.ExplainMissResponse, error) {
	return call(ctx, c, c.service.ExplainMiss, explainDeadline, request, options)
}

// Recall returns what an agent's memory contains about a turn of a session, as a text to insert before the turn. If a
// reply is lost while RememberShown is set, its items count as shown, and a retry does not return them. The default
// deadline is 2 seconds.
func (c *Client) Recall(
	ctx context.Context, request *memorydv1.MemoryRecallRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryRecallResponse, error) {
	return call(ctx, c, c.service.MemoryRecall, recallDeadline, request, options)
}

// Get reads a range of lines of a memory file. The default deadline is 2 seconds.
func (c *Client) Get(
	ctx context.Context, request *memorydv1.MemoryGetRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryGetResponse, error) {
	return call(ctx, c, c.service.MemoryGet, getDeadline, request, options)
}

// Status returns the status of the daemon and of one agent. The default deadline is 2 seconds, or 10 seconds with
// Probe. A nil request means the agent "main", as in every call whose request has no required fields.
func (c *Client) Status(
	ctx context.Context, request *memorydv1.StatusRequest, options ...grpc.CallOption,
) (*memorydv1.StatusResponse, error) {
	documented := statusDeadline
	if request.GetProbe() {
		documented = probeDeadline
	}
	return call(ctx, c, c.service.Status, documented, request, options)
}

// Sync starts a sync run, or joins the current one, and streams its events. The last event is Completed. There is no
// default deadline. Closing the stream, or cancelling the context, does not stop the run unless OnDisconnect is CANCEL.
func (c *Client) Sync(
	ctx context.Context, request *memorydv1.SyncRequest, options ...grpc.CallOption,
) (*Stream[memorydv1.SyncResponse], error) {
	return follow(ctx, c, c.service.Sync, request, options)
}

// Watch streams the state of an agent's index: the current state first, then each change, until the stream is closed or
// the context is cancelled. It does not start a sync. There is no default deadline.
func (c *Client) Watch(
	ctx context.Context, request *memorydv1.WatchIndexRequest, options ...grpc.CallOption,
) (*Stream[memorydv1.WatchIndexResponse], error) {
	return follow(ctx, c, c.service.WatchIndex, request, options)
}

// FlushDecision decides whether the agent should write notes before its context is compacted. The default deadline is 1
// second.
func (c *Client) FlushDecision(
	ctx context.Context, request *memorydv1.FlushDecisionRequest, options ...grpc.CallOption,
) (*memorydv1.FlushDecisionResponse, error) {
	return call(ctx, c, c.service.FlushDecision, flushDeadline, request, options)
}

// Append appends text to today's log or to the file in the request. If the request has no IdempotencyKey, a random one
// is sent, so that retries are safe. The default deadline is 5 seconds.
func (c *Client) Append(
	ctx context.Context, request *memorydv1.MemoryAppendRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryAppendResponse, error) {
	if request != nil && request.GetIdempotencyKey() == "" {
		request = proto.CloneOf(request)
		request.IdempotencyKey = rand.Text()
	}
	return call(ctx, c, c.service.MemoryAppend, appendDeadline, request, options)
}

// Write creates, replaces, edits or deletes a memory file, if it still has the content of ExpectedSha256. If it has
// another content, the call fails with the reason CONTENT_CHANGED. If the request has no IdempotencyKey, a random one is
// sent, so that retries are safe. The default deadline is 5 seconds.
func (c *Client) Write(
	ctx context.Context, request *memorydv1.MemoryWriteRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryWriteResponse, error) {
	if request != nil && request.GetIdempotencyKey() == "" {
		request = proto.CloneOf(request)
		request.IdempotencyKey = rand.Text()
	}
	return call(ctx, c, c.service.MemoryWrite, editDeadline, request, options)
}

// Move renames a memory file, if it still has the content of ExpectedSha256. If the request has no IdempotencyKey, a
// random one is sent, so that retries are safe. The default deadline is 5 seconds.
func (c *Client) Move(
	ctx context.Context, request *memorydv1.MemoryMoveRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryMoveResponse, error) {
	if request != nil && request.GetIdempotencyKey() == "" {
		request = proto.CloneOf(request)
		request.IdempotencyKey = rand.Text()
	}
	return call(ctx, c, c.service.MemoryMove, editDeadline, request, options)
}

// History returns one page of the writes of a memory file, or of all files of an agent, newest first. The default
// deadline is 5 seconds.
func (c *Client) History(
	ctx context.Context, request *memorydv1.MemoryHistoryRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryHistoryResponse, error) {
	return call(ctx, c, c.service.MemoryHistory, editDeadline, request, options)
}

// Restore restores the content that a write replaced or deleted; itself a write. If the request has no IdempotencyKey, a
// random one is sent, so that retries are safe. The default deadline is 5 seconds.
func (c *Client) Restore(
	ctx context.Context, request *memorydv1.MemoryRestoreRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryRestoreResponse, error) {
	if request != nil && request.GetIdempotencyKey() == "" {
		request = proto.CloneOf(request)
		request.IdempotencyKey = rand.Text()
	}
	return call(ctx, c, c.service.MemoryRestore, editDeadline, request, options)
}

// Forget removes a file, a session or a text from all derived data, and returns the number of removed items. The
// default deadline is 10 seconds.
func (c *Client) Forget(
	ctx context.Context, request *memorydv1.MemoryForgetRequest, options ...grpc.CallOption,
) (*memorydv1.MemoryForgetResponse, error) {
	return call(ctx, c, c.service.MemoryForget, forgetDeadline, request, options)
}

// SessionContext returns the memory files that a session loads at its start. The default deadline is 2 seconds.
func (c *Client) SessionContext(
	ctx context.Context, request *memorydv1.SessionContextRequest, options ...grpc.CallOption,
) (*memorydv1.SessionContextResponse, error) {
	return call(ctx, c, c.service.SessionContext, contextDeadline, request, options)
}

// SessionArchive writes the last messages of a transcript to a new memory file. Retries are safe. The default deadline
// is 10 seconds.
func (c *Client) SessionArchive(
	ctx context.Context, request *memorydv1.SessionArchiveRequest, options ...grpc.CallOption,
) (*memorydv1.SessionArchiveResponse, error) {
	return call(ctx, c, c.service.SessionArchive, archiveDeadline, request, options)
}

// SessionAppend appends records to the transcript of a session. It is not retried after UNAVAILABLE. Repeat it with
// ExpectedRecords; without it, a repeated call can append the records twice. The default deadline is 5 seconds.
func (c *Client) SessionAppend(
	ctx context.Context, request *memorydv1.SessionAppendRequest, options ...grpc.CallOption,
) (*memorydv1.SessionAppendResponse, error) {
	return call(ctx, c, c.service.SessionAppend, appendDeadline, request, options)
}

// ListAgents returns one page of the agents that the caller is allowed to use. The default deadline is 2 seconds.
func (c *Client) ListAgents(
	ctx context.Context, request *memorydv1.ListAgentsRequest, options ...grpc.CallOption,
) (*memorydv1.ListAgentsResponse, error) {
	return call(ctx, c, c.service.ListAgents, listDeadline, request, options)
}

// ListFiles returns one page of an agent's memory files with their index state. The default deadline is 2 seconds.
func (c *Client) ListFiles(
	ctx context.Context, request *memorydv1.ListFilesRequest, options ...grpc.CallOption,
) (*memorydv1.ListFilesResponse, error) {
	return call(ctx, c, c.service.ListFiles, listDeadline, request, options)
}
