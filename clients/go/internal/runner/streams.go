package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
)

// opened is an open stream. If it could not be opened, its first event returns the error, as if the call failed later.
type opened struct {
	next  func() (proto.Message, error)
	close func()
}

type streamCall func(context.Context, context.CancelFunc, *memoryd.Client, json.RawMessage) (*opened, error)

var streams = map[string]streamCall{
	"sync":  following((*memoryd.Client).Sync),
	"watch": following((*memoryd.Client).Watch),
}

// following wraps a streaming method of a client in a function that accepts its request as JSON.
func following[Request any, Event any, RequestP message[Request], EventP message[Event]](
	method func(*memoryd.Client, context.Context, RequestP, ...grpc.CallOption) (*memoryd.Stream[Event], error),
) streamCall {
	return func(
		ctx context.Context, cancel context.CancelFunc, client *memoryd.Client, content json.RawMessage,
	) (*opened, error) {
		request := RequestP(new(Request))
		if err := read(content, request); err != nil {
			return nil, err
		}
		stream, failure := method(client, ctx, request)
		if failure != nil {
			return &opened{next: func() (proto.Message, error) { return nil, failure }, close: cancel}, nil
		}
		next := func() (proto.Message, error) {
			event, err := stream.Recv()
			return EventP(event), err
		}
		return &opened{next: next, close: func() { stream.Close(); cancel() }}, nil
	}
}

func (r *runner) open(asked request) answer {
	method, known := streams[asked.Method]
	if !known || r.client == nil {
		return answer{Bad: fmt.Sprintf("no such stream, or no client: %q", asked.Method)}
	}
	ctx, cancel := limited(asked.TimeoutMS)
	stream, err := method(ctx, cancel, r.client, asked.Request)
	if err != nil {
		cancel()
		return failed(err)
	}
	r.streams[asked.Stream] = stream
	return done
}

func (r *runner) next(asked request) answer {
	stream := r.streams[asked.Stream]
	if stream == nil {
		return answer{Bad: fmt.Sprintf("no such stream: %q", asked.Stream)}
	}
	message, err := stream.next()
	switch {
	case errors.Is(err, io.EOF):
		return answer{End: true}
	case err != nil:
		return failed(err)
	default:
		return event(message)
	}
}

func (r *runner) cancel(asked request) answer {
	stream := r.streams[asked.Stream]
	if stream == nil {
		return answer{Bad: fmt.Sprintf("no such stream: %q", asked.Stream)}
	}
	stream.close()
	return done
}
