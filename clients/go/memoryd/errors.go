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

// Error is a call that did not end with OK, with everything that its status says.
//
//	var failure *memoryd.Error
//	if errors.As(err, &failure) && failure.Reason == "FILE_NOT_FOUND" {
//
// errors.Is knows it as context.DeadlineExceeded or context.Canceled where that is its code.
type Error struct {
	// Code is gRPC's.
	Code codes.Code
	// Reason is the name of a memorydv1.ErrorReason without its prefix. It is empty for a status that gRPC itself made,
	// such as that of a daemon that does not answer.
	Reason string
	// Message says what was wrong, which value, and what to do.
	Message string
	// Metadata holds the values that the message speaks of.
	Metadata map[string]string
	// Violations are all bad fields of the request.
	Violations []Violation
	// RetryAfter is how long to wait before trying again; nil where trying again does not help.
	RetryAfter *time.Duration

	status *status.Status
}

// Violation is one thing wrong with one field of a request.
type Violation struct {
	// Field is its name in the contract, for example "max_results".
	Field string
	// Description says what is wrong with it.
	Description string
}

// Error is the reason, or the code where there is none, and the message.
func (e *Error) Error() string {
	name := e.Reason
	if name == "" {
		name = codeName(e.Code)
	}
	return fmt.Sprintf("memoryd: %s: %s", name, e.Message)
}

// GRPCStatus is the status as it came, so that the functions of gRPC's package status read this error, too.
func (e *Error) GRPCStatus() *status.Status {
	if e.status == nil {
		return status.New(e.Code, e.Message)
	}
	return e.status
}

// Is reports whether target is the error of package context that says the same as the code.
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

// ReasonOf is the reason of the [*Error] in err's tree; empty where there is none, or it has none.
func ReasonOf(err error) string {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Reason
	}
	return ""
}

// asError is what a failed call stands for. Details that cannot be read, and those of other kinds, are left out.
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

// refusal is what the client refuses by itself, before any call.
func refusal(format string, values ...any) error {
	return fmt.Errorf("memoryd: "+format, values...)
}
