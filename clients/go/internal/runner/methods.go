package main

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
)

type unaryCall func(context.Context, *memoryd.Client, json.RawMessage) (proto.Message, error)

var unary = map[string]unaryCall{
	"search":          of((*memoryd.Client).Search),
	"explain_miss":    of((*memoryd.Client).ExplainMiss),
	"recall":          of((*memoryd.Client).Recall),
	"get":             of((*memoryd.Client).Get),
	"status":          of((*memoryd.Client).Status),
	"flush_decision":  of((*memoryd.Client).FlushDecision),
	"append":          of((*memoryd.Client).Append),
	"write":           of((*memoryd.Client).Write),
	"move":            of((*memoryd.Client).Move),
	"history":         of((*memoryd.Client).History),
	"restore":         of((*memoryd.Client).Restore),
	"forget":          of((*memoryd.Client).Forget),
	"session_context": of((*memoryd.Client).SessionContext),
	"session_archive": of((*memoryd.Client).SessionArchive),
	"session_append":  of((*memoryd.Client).SessionAppend),
	"list_agents":     of((*memoryd.Client).ListAgents),
	"list_files":      of((*memoryd.Client).ListFiles),
	"remember":        ofEntries((*memoryd.Entries).Remember),
	"recall_entries":  ofEntries((*memoryd.Entries).Recall),
	"forget_entry":    ofEntries((*memoryd.Entries).Forget),
	"list_entries":    ofEntries((*memoryd.Entries).List),
	"suggest_capture": ofEntries((*memoryd.Entries).SuggestCapture),
	"recall_block":    ofEntries((*memoryd.Entries).RecallBlock),
}

// message is a pointer to a message of the API.
type message[M any] interface {
	*M
	proto.Message
}

// of wraps a method of a client in a function that accepts its request as JSON.
func of[Request any, Response any, RequestP message[Request], ResponseP message[Response]](
	method func(*memoryd.Client, context.Context, RequestP, ...grpc.CallOption) (ResponseP, error),
) unaryCall {
	return func(ctx context.Context, client *memoryd.Client, content json.RawMessage) (proto.Message, error) {
		request := RequestP(new(Request))
		if err := read(content, request); err != nil {
			return nil, err
		}
		response, err := method(client, ctx, request)
		return response, err
	}
}

func ofEntries[Request any, Response any, RequestP message[Request], ResponseP message[Response]](
	method func(*memoryd.Entries, context.Context, RequestP, ...grpc.CallOption) (ResponseP, error),
) unaryCall {
	return of(func(
		client *memoryd.Client, ctx context.Context, request RequestP, options ...grpc.CallOption,
	) (ResponseP, error) {
		return method(client.Entries(), ctx, request, options...)
	})
}

func read(content json.RawMessage, request proto.Message) error {
	if len(content) == 0 {
		return nil
	}
	return protojson.Unmarshal(content, request)
}
