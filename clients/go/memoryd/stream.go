package memoryd

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Stream is the stream of events of a Sync or a Watch.
//
//	for event, err := range stream.All() {
//		if err != nil {
//			return err
//		}
//		fmt.Println(event.GetSequence())
//	}
//
// A stream that is not read to its end must be closed. Only one goroutine at a time may read; any goroutine may close.
type Stream[Event any] struct {
	ctx    context.Context
	cancel context.CancelFunc
	client *Client
	call   grpc.ServerStreamingClient[Event]
	ended  error
}

// Recv waits for the next event. It returns io.EOF after the last event, and an [*Error] if the call failed; after
// Close, the error has the code Canceled. After an error or io.EOF, every call returns the same value.
func (s *Stream[Event]) Recv() (*Event, error) {
	if s.ended != nil {
		return nil, s.ended
	}
	// Events that arrived before the stream was closed are not returned afterwards.
	if err := s.ctx.Err(); err != nil {
		return nil, s.end(status.FromContextError(err).Err())
	}
	event, err := s.call.Recv()
	if err != nil {
		return nil, s.end(err)
	}
	return event, nil
}

// All yields all events. If the call fails, it yields a nil event and the error last. Leaving the loop closes the
// stream.
func (s *Stream[Event]) All() iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		defer s.Close()
		for {
			event, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the call. It can be called more than once, and while another goroutine waits in Recv.
func (s *Stream[Event]) Close() {
	s.cancel()
}

func (s *Stream[Event]) end(err error) error {
	s.ended = err
	if !errors.Is(err, io.EOF) {
		s.ended = s.client.failure(err)
	}
	s.cancel()
	return s.ended
}

type streamMethod[Request, Event any] func(
	context.Context, *Request, ...grpc.CallOption,
) (grpc.ServerStreamingClient[Event], error)

func follow[Request, Event any](
	ctx context.Context, client *Client, method streamMethod[Request, Event], request *Request,
	options []grpc.CallOption,
) (*Stream[Event], error) {
	ctx, cancel := context.WithCancel(ctx)
	call, err := method(ctx, request, options...)
	if err != nil {
		cancel()
		return nil, client.failure(err)
	}
	return &Stream[Event]{ctx: ctx, cancel: cancel, client: client, call: call}, nil
}
