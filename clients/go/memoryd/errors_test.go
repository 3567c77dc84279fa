package memoryd_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/memoryd/memoryd/clients/go/memoryd"
)

func failedWith(t *testing.T, code codes.Code, message string, details ...proto.Message) *memoryd.Error {
	t.Helper()
	whole := &statuspb.Status{Code: int32(code), Message: message}
	for _, detail := range details {
		packed, isAny := detail.(*anypb.Any)
		if !isAny {
			var err error
			if packed, err = anypb.New(detail); err != nil {
				t.Fatal(err)
			}
		}
		whole.Details = append(whole.Details, packed)
	}
	server := &fake{fail: func(int) error { return status.ErrorProto(whole) }}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)), memoryd.WithTimeout(20*time.Second))
	_, err := client.Get(t.Context(), nil)
	var failure *memoryd.Error
	if !errors.As(err, &failure) {
		t.Fatalf("failed with %v", err)
	}
	return failure
}

func TestEveryViolationOfABadRequestArrives(t *testing.T) {
	alone(t)
	failure := failedWith(t, codes.InvalidArgument, "query: must not be blank; max_results: must be at least 1",
		&errdetails.ErrorInfo{Reason: "INVALID_REQUEST", Domain: "memoryd", Metadata: map[string]string{"request_id": "r1"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "query", Description: "must not be blank"},
			{Field: "max_results", Description: "must be at least 1"},
		}},
	)
	if failure.Code != codes.InvalidArgument || failure.Reason != "INVALID_REQUEST" || failure.RetryAfter != nil {
		t.Errorf("got %+v", failure)
	}
	if !reflect.DeepEqual(failure.Metadata, map[string]string{"request_id": "r1"}) {
		t.Errorf("got %v", failure.Metadata)
	}
	wanted := []memoryd.Violation{{"query", "must not be blank"}, {"max_results", "must be at least 1"}}
	if !reflect.DeepEqual(failure.Violations, wanted) {
		t.Errorf("got %v", failure.Violations)
	}
	text := "memoryd: INVALID_REQUEST: query: must not be blank; max_results: must be at least 1"
	if failure.Error() != text {
		t.Errorf("reads %q", failure.Error())
	}
	if status.Code(failure) != codes.InvalidArgument || memoryd.ReasonOf(failure) != "INVALID_REQUEST" {
		t.Error("the error is not what it says it is")
	}
}

func TestTheTimeToWaitBeforeTryingAgainArrives(t *testing.T) {
	alone(t)
	failure := failedWith(t, codes.ResourceExhausted, "too many calls",
		&errdetails.Help{},
		&errdetails.ErrorInfo{Reason: "TOO_MANY_REQUESTS", Domain: "memoryd"},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)},
	)
	if failure.Reason != "TOO_MANY_REQUESTS" || failure.RetryAfter == nil || *failure.RetryAfter != 1500*time.Millisecond {
		t.Errorf("got %+v", failure)
	}
}

func TestDetailsThatCannotBeReadAreLeftOut(t *testing.T) {
	alone(t)
	failure := failedWith(t, codes.NotFound, "no such file",
		&anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.BadRequest", Value: []byte{0xff, 0xff}},
		&anypb.Any{TypeUrl: "type.googleapis.com/of.somebody.Else", Value: []byte{1}},
		&errdetails.ErrorInfo{Reason: "FILE_NOT_FOUND", Domain: "memoryd"},
	)
	if failure.Code != codes.NotFound || failure.Reason != "FILE_NOT_FOUND" || failure.Violations != nil {
		t.Errorf("got %+v", failure)
	}
}

func TestAStatusWithoutDetailsHasCodeAndMessage(t *testing.T) {
	alone(t)
	failure := failedWith(t, codes.Internal, "unreadable")
	if failure.Code != codes.Internal || failure.Reason != "" || failure.Error() != "memoryd: INTERNAL: unreadable" {
		t.Errorf("got %v", failure)
	}
}

func TestADaemonThatIsNotThereIsUnavailable(t *testing.T) {
	alone(t)
	client := connect(t, memoryd.WithAddress("unix:"+shortFolder(t)+"/none"), memoryd.WithTimeout(20*time.Second))
	begun := time.Now()
	_, err := client.Get(t.Context(), nil)
	if status.Code(err) != codes.Unavailable || memoryd.ReasonOf(err) != "" {
		t.Fatalf("failed with %v", err)
	}
	if waited := time.Since(begun); waited < 500*time.Millisecond || waited > 15*time.Second {
		t.Errorf("gave up after %v", waited)
	}
}

func TestACallIsTriedFiveTimesAndOneWithADeadlineOfASecondFourTimes(t *testing.T) {
	alone(t)
	for name, tries := range map[string]int{"get": 5, "append": 5, "flush decision": 4, "suggest capture": 4} {
		for failures, wanted := range map[int]codes.Code{tries - 1: codes.OK, tries: codes.Unavailable} {
			server := &fake{
				answers: map[string]proto.Message{calls[name].method: calls[name].answer}, fail: failing(failures),
			}
			client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)), memoryd.WithTimeout(time.Minute))
			_, err := calls[name].call(t.Context(), client)
			if status.Code(err) != wanted || len(server.asked) != tries {
				t.Errorf("%s after %d failures: %v, %d tries", name, failures, err, len(server.asked))
			}
		}
	}
}

func TestACancelledContextIsThatError(t *testing.T) {
	alone(t)
	client := connect(t, memoryd.WithAddress((&fake{}).serveOnSocket(t)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.Get(ctx, nil)
	if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("failed with %v", err)
	}
}
