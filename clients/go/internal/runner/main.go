// The runner executes the shared tests of all clients with this client: it reads requests from standard input and
// writes responses to standard output, one JSON object per line. tests/clients/README.md describes the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
)

type request struct {
	ID          json.RawMessage `json:"id"`
	Op          string          `json:"op"`
	Address     string          `json:"address"`
	Token       string          `json:"token"`
	TLS         *tlsFiles       `json:"tls"`
	KeepaliveMS int64           `json:"keepalive_ms"`
	Method      string          `json:"method"`
	Stream      string          `json:"stream"`
	Request     json.RawMessage `json:"request"`
	TimeoutMS   *int64          `json:"timeout_ms"`
}

type tlsFiles struct {
	CAFile     string `json:"ca_file"`
	CertFile   string `json:"cert_file"`
	KeyFile    string `json:"key_file"`
	ServerName string `json:"server_name"`
}

type answer struct {
	ID      json.RawMessage `json:"id"`
	OK      json.RawMessage `json:"ok,omitempty"`
	End     bool            `json:"end,omitempty"`
	Error   *failure        `json:"error,omitempty"`
	Refused string          `json:"refused,omitempty"`
	Bad     string          `json:"bad,omitempty"`
}

type failure struct {
	Code         string            `json:"code"`
	Reason       string            `json:"reason"`
	Message      string            `json:"message"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Violations   []violation       `json:"violations,omitempty"`
	RetryAfterMS *int64            `json:"retry_after_ms,omitempty"`
}

type violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

var done = answer{OK: json.RawMessage("{}")}

// runner holds the current client and its open streams.
type runner struct {
	client  *memoryd.Client
	streams map[string]*opened
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(input io.Reader, output io.Writer) error {
	running := &runner{}
	lines, answers := bufio.NewReader(input), json.NewEncoder(output)
	answers.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return running.close()
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			return fmt.Errorf("not a request: %w", err)
		}
		said := running.answer(asked)
		said.ID = asked.ID
		if err := answers.Encode(said); err != nil {
			return err
		}
	}
}

func (r *runner) answer(asked request) answer {
	switch asked.Op {
	case "connect":
		return r.connect(asked)
	case "call":
		return r.call(asked)
	case "open":
		return r.open(asked)
	case "next":
		return r.next(asked)
	case "cancel":
		return r.cancel(asked)
	case "close":
		if err := r.close(); err != nil {
			return answer{Bad: err.Error()}
		}
		return done
	default:
		return answer{Bad: fmt.Sprintf("no such op: %q", asked.Op)}
	}
}

func (r *runner) connect(asked request) answer {
	if err := r.close(); err != nil {
		return answer{Bad: err.Error()}
	}
	options := []memoryd.Option{
		memoryd.WithAddress(asked.Address),
		memoryd.WithToken(asked.Token),
		memoryd.WithKeepalive(time.Duration(asked.KeepaliveMS) * time.Millisecond),
	}
	if asked.TLS != nil {
		options = append(options, memoryd.WithTLS(memoryd.TLS(*asked.TLS)))
	}
	client, err := memoryd.Connect(options...)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	r.client, r.streams = client, make(map[string]*opened)
	return done
}

func (r *runner) close() error {
	if r.client == nil {
		return nil
	}
	for _, stream := range r.streams {
		stream.close()
	}
	client := r.client
	r.client, r.streams = nil, nil
	return client.Close()
}

func (r *runner) call(asked request) answer {
	method, known := unary[asked.Method]
	if !known || r.client == nil {
		return answer{Bad: fmt.Sprintf("no such method, or no client: %q", asked.Method)}
	}
	ctx, cancel := limited(asked.TimeoutMS)
	defer cancel()
	message, err := method(ctx, r.client, asked.Request)
	if err != nil {
		return failed(err)
	}
	return event(message)
}

func limited(timeoutMS *int64) (context.Context, context.CancelFunc) {
	if timeoutMS == nil {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(*timeoutMS)*time.Millisecond)
}

func event(message proto.Message) answer {
	content, err := protojson.Marshal(message)
	if err != nil {
		return answer{Bad: err.Error()}
	}
	return answer{OK: content}
}

// failed returns the answer for a failed call, or for a request that is not in the API.
func failed(err error) answer {
	var typed *memoryd.Error
	if !errors.As(err, &typed) {
		return answer{Bad: err.Error()}
	}
	details := &failure{
		Code: code.Code_name[int32(typed.Code)], Reason: typed.Reason, Message: typed.Message, Metadata: typed.Metadata,
	}
	for _, each := range typed.Violations {
		details.Violations = append(details.Violations, violation(each))
	}
	if typed.RetryAfter != nil {
		wait := typed.RetryAfter.Milliseconds()
		details.RetryAfterMS = &wait
	}
	return answer{Error: details}
}
