package memoryd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is a status other than OK, with its details.
//
//	var failure *memoryd.Error
//	if errors.As(err, &failure) && failure.Reason == "FILE_NOT_FOUND" {
//
// errors.Is matches it with context.DeadlineExceeded or context.Canceled if it has that code.
type Error struct {
	// Code is the gRPC status code.
	Code codes.Code
	// Reason is the name of a memorydv1.ErrorReason without its prefix. It is empty for a status that gRPC itself created,
	// for example if the daemon is not running.
	Reason string
	// Message says what is wrong, with the value, and what to do.
	Message string
	// Metadata contains the values that the message refers to.
	Metadata map[string]string
	// Violations lists all invalid fields of the request.
	Violations []Violation
	// RetryAfter is the time to wait before a retry; nil if a retry does not help.
	RetryAfter *time.Duration

	status *status.Status
}

// Violation is an invalid field of a request.
type Violation struct {
	// Field is the name of the field, for example "max_results".
	Field string
	// Description says why the field is invalid.
	Description string
}

// Error returns the reason, or the code if there is no reason, and the message.
func (e *Error) Error() string {
	name := e.Reason
	if name == "" {
		name = codeName(e.Code)
	}
	return fmt.Sprintf("memoryd: %s: %s", name, e.Message)
}

// GRPCStatus returns the original status, so that gRPC's status package accepts this error.
func (e *Error) GRPCStatus() *status.Status {
	if e.status == nil {
		return status.New(e.Code, e.Message)
	}
	return e.status
}

// Is reports whether target is the error of package context that corresponds to the code.
func (e *Error) Is(target error) bool {
	switch e.Code {
	case codes.Canceled:
		return target == context.Canceled
	case codes.DeadlineExceeded:
		return target == context.DeadlineExceeded
	default:
		return false
	}
}

// ReasonOf returns the reason of the [*Error] in err's tree, or an empty string if there is none.
func ReasonOf(err error) string {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Reason
	}
	return ""
}

// asError returns the Error of a failed call. Details that cannot be decoded, and unknown details, are omitted.
func asError(err error) *Error {
	whole := status.Convert(err)
	failure := &Error{Code: whole.Code(), Message: whole.Message(), status: whole}
	for _, detail := range whole.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			failure.Reason, failure.Metadata = detail.GetReason(), detail.GetMetadata()
		case *errdetails.BadRequest:
			for _, each := range detail.GetFieldViolations() {
				failure.Violations = append(failure.Violations, Violation{each.GetField(), each.GetDescription()})
			}
		case *errdetails.RetryInfo:
			if delay := detail.GetRetryDelay(); delay.IsValid() {
				wait := delay.AsDuration()
				failure.RetryAfter = &wait
			}
		}
	}
	return failure
}

func codeName(number codes.Code) string {
	if name, known := code.Code_name[int32(number)]; known {
		return name
	}
	return number.String()
}

// refusal returns an error that the client detected before a call.
func refusal(format string, values ...any) error {
	return fmt.Errorf("memoryd: "+format, values...)
}
