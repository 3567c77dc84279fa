package memoryd_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func TestASyncYieldsItsEventsInOrder(t *testing.T) {
	alone(t)
	server := &fake{}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)), memoryd.WithTimeout(time.Minute))
	stream, err := client.Sync(t.Context(), &memorydv1.SyncRequest{AgentId: "a"})
	if err != nil {
		t.Fatal(err)
	}
	var seen []int64
	for event, err := range stream.All() {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, event.GetSequence())
	}
	if len(seen) != 2 || seen[0] != 1 || seen[1] != 2 {
		t.Errorf("saw %v", seen)
	}
	if server.last(t).limited {
		t.Error("a stream has a deadline that was not requested")
	}
	stream.Close()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after its end it gives %v", err)
	}
}

func TestASyncThatFailsMidwayFailsAfterWhatItHadSent(t *testing.T) {
	alone(t)
	server := &fake{fail: failing(9)}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
	stream, err := client.Sync(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var seen int
	var failures []error
	for event, err := range stream.All() {
		if err != nil {
			failures = append(failures, err)
		} else if event.GetSequence() == 1 {
			seen++
		}
	}
	if seen != 1 || len(failures) != 1 || status.Code(failures[0]) != codes.Unavailable {
		t.Errorf("saw %d events and %v", seen, failures)
	}
	if _, err := stream.Recv(); err != failures[0] {
		t.Errorf("after its end it gives %v", err)
	}
}

func TestLeavingTheLoopEndsTheCall(t *testing.T) {
	alone(t)
	server := &fake{left: make(chan struct{})}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
	stream, err := client.Watch(t.Context(), &memorydv1.WatchIndexRequest{AgentId: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for event, err := range stream.All() {
		if err != nil || event.GetAgentId() != "a" {
			t.Fatal(event, err)
		}
		break
	}
	waitFor(t, server.left)
}

func TestAStreamThatWasClosedIsCancelledWhateverHadArrived(t *testing.T) {
	alone(t)
	server := &fake{left: make(chan struct{})}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
	stream, err := client.Watch(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	for range 5 {
		if _, err := stream.Recv(); !errors.Is(err, context.Canceled) {
			t.Fatalf("gives %v", err)
		}
	}
	waitFor(t, server.left)
}

func TestClosingFreesWhoeverWaitsForAnEvent(t *testing.T) {
	alone(t)
	server := &fake{left: make(chan struct{})}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
	stream, err := client.Watch(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	time.Sleep(10 * time.Millisecond)
	stream.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for ever")
	}
	waitFor(t, server.left)
}

func TestAStreamsContextLimitsIt(t *testing.T) {
	alone(t)
	server := &fake{left: make(chan struct{})}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	stream, err := client.Watch(ctx, nil)
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
}

func TestAStreamThatCannotBeOpenedFails(t *testing.T) {
	alone(t)
	client := connect(t, memoryd.WithAddress("unix:"+shortFolder(t)+"/none"))
	stream, err := client.Sync(t.Context(), nil)
	if status.Code(err) != codes.Unavailable || stream != nil {
		t.Errorf("gives %v, %v", stream, err)
	}
}

func waitFor(t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(20 * time.Second):
		t.Error("the server was not notified that the caller disconnected")
	}
}
