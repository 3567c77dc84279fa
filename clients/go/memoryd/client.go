package memoryd

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// The retry policy of all clients: a copy of clients/service_config.json.
//
//go:embed service_config.json
var serviceConfig string

// Minimum time for one connection attempt.
const connectTimeout = 5 * time.Second

// After a restart of the daemon, the client reconnects before the retries of a call are exhausted.
var redialing = backoff.Config{
	BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 250 * time.Millisecond,
}

// Client calls one daemon, or the replicas at several addresses in turn. It is safe for concurrent use. Close releases
// its connections.
type Client struct {
	where       addresses
	connection  *grpc.ClientConn
	connections *connections
	service     memorydv1.MemoryServiceClient
	entries     *Entries
	timeout     time.Duration
}

// Connect returns a client of the daemon at the given address, or of the daemon that discovery finds. The first call
// opens the connections, so the daemon does not have to be running yet.
//
// It returns an error if an address is malformed, if a named file cannot be read, or if the token would be sent
// unencrypted to another machine.
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
	resolving := newResolverBuilder(target)
	connection, err := grpc.NewClient(
		resolving.target(), append(dialOptions(target, resolving, held, given), given.dial...)...)
	if err != nil {
		return nil, refusal("cannot connect to %s: %w", target.where, err)
	}
	client := &Client{
		where:       target.where,
		connection:  connection,
		connections: held,
		service:     memorydv1.NewMemoryServiceClient(connection),
		timeout:     given.timeout,
	}
	client.entries = &Entries{client: client, service: memorydv1.NewEntryServiceClient(connection)}
	return client, nil
}

// Close cancels running calls, closes the connections and returns when their file descriptors are released.
func (c *Client) Close() error {
	err := c.connection.Close()
	c.connections.close()
	return err
}

// Entries returns the calls of the entry service.
func (c *Client) Entries() *Entries {
	return c.entries
}

func dialOptions(target target, resolving resolverBuilder, held *connections, given settings) []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithResolvers(resolving),
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

// bearer adds the token to the metadata of each call. resolve ensures that it is not sent unencrypted to another
// machine.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

type unaryMethod[Request, Response any] func(context.Context, *Request, ...grpc.CallOption) (*Response, error)

// call makes a unary call with the deadline of its context, or else of the client, or else the default deadline.
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
		return nil, client.failure(err)
	}
	return response, nil
}

// failure returns the Error of a failed call. If a client has several addresses and none of them can be connected to,
// the message names them all, because gRPC's own message names only one.
func (c *Client) failure(err error) *Error {
	failed := asError(err)
	if len(c.where) == 1 || failed.Code != codes.Unavailable || failed.Reason != "" ||
		c.connection.GetState() != connectivity.TransientFailure {
		return failed
	}
	failed.Message = fmt.Sprintf("no daemon answers at %s: %s", c.where, failed.Message)
	failed.status = status.New(failed.Code, failed.Message)
	return failed
}
