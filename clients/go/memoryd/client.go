package memoryd

import (
	"context"
	_ "embed"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// The policy that all clients share: clients/service_config.json of the repository.
//
//go:embed service_config.json
var serviceConfig string

// What a connection may take to be made before another attempt begins.
const connectTimeout = 5 * time.Second

// A daemon that restarts is dialled again before the retries of a call are used up.
var redialing = backoff.Config{
	BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 250 * time.Millisecond,
}

// Client calls one daemon. It may be used by several goroutines at once. Close gives back what it holds.
type Client struct {
	connection  *grpc.ClientConn
	connections *connections
	service     memorydv1.MemoryServiceClient
	entries     *Entries
	timeout     time.Duration
}

// Connect returns a client of the daemon that the options name, or that is found. The connection is made by the first
// call, so that a daemon need not run yet.
//
// It fails where an address is ill-formed, where a file that is named cannot be read, and where a token would travel in
// the clear beyond this machine.
func Connect(options ...Option) (*Client, error) {
	var given settings
	for _, option := range options {
		option(&given)
	}
	target, err := resolve(given)
	if err != nil {
		return nil, err
	}
	held := newConnections(target.where)
	connection, err := grpc.NewClient(target.where.target(), append(dialOptions(target, held, given), given.dial...)...)
	if err != nil {
		return nil, refusal("cannot connect to %s: %w", target.where, err)
	}
	client := &Client{
		connection:  connection,
		connections: held,
		service:     memorydv1.NewMemoryServiceClient(connection),
		timeout:     given.timeout,
	}
	client.entries = &Entries{client: client, service: memorydv1.NewEntryServiceClient(connection)}
	return client, nil
}

// Close ends calls under way as cancelled, and returns when the connection and its file descriptor are given back.
func (c *Client) Close() error {
	err := c.connection.Close()
	c.connections.close()
	return err
}

// Entries has the calls that concern entries.
func (c *Client) Entries() *Entries {
	return c.entries
}

func dialOptions(target target, held *connections, given settings) []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(held.dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redialing, MinConnectTimeout: connectTimeout}),
	}
	if target.where.isSocket() {
		options = append(options, grpc.WithAuthority("localhost"))
	}
	if target.tls != nil {
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(target.tls)))
	}
	if target.token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(target.token)))
	}
	if given.keepalive > 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: given.keepalive, PermitWithoutStream: true,
		}))
	}
	return options
}

// bearer is a token as each call carries it. resolve has seen to it that it does not leave this machine in the clear.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

type unaryMethod[Request, Response any] func(context.Context, *Request, ...grpc.CallOption) (*Response, error)

// call makes a unary call within the deadline of its context, the client's, or the documented one.
func call[Request, Response any](
	ctx context.Context, client *Client, method unaryMethod[Request, Response], documented time.Duration,
	request *Request, options []grpc.CallOption,
) (*Response, error) {
	if _, has := ctx.Deadline(); !has {
		if client.timeout > 0 {
			documented = client.timeout
		}
		limited, cancel := context.WithTimeout(ctx, documented)
		defer cancel()
		ctx = limited
	}
	response, err := method(ctx, request, options...)
	if err != nil {
		return nil, asError(err)
	}
	return response, nil
}
