package memoryd

import (
	"time"

	"google.golang.org/grpc"
)

// Option is an option of [Connect]. Discovery finds the values that are not set by an option. A blank value counts as
// not set.
type Option func(*settings)

type settings struct {
	address   string
	token     string
	tls       *TLS
	timeout   time.Duration
	keepalive time.Duration
	dial      []grpc.DialOption
}

// WithAddress sets the address of the daemon: "unix:PATH", "HOST:PORT" or "[::1]:PORT". The TCP addresses of several
// replicas are separated by commas: "a.example:7627,b.example:7627". Calls then alternate between the replicas that are
// connected. The default is the first of MEMORYD_ADDRESS, the endpoint file in the state directory, and the default
// socket.
func WithAddress(address string) Option {
	return func(s *settings) { s.address = address }
}

// WithToken sets the bearer token for TCP. The default is the first line of the file in MEMORYD_TOKEN_FILE or, for an
// address on loopback, of "memoryd.token" in the state directory. No token is sent over a Unix socket.
func WithToken(token string) Option {
	return func(s *settings) { s.token = token }
}

// WithTLS enables TLS over TCP. By default TLS is enabled if MEMORYD_TLS is 1, or if it is not set and MEMORYD_TLS_CA,
// MEMORYD_TLS_CERT or MEMORYD_TLS_KEY names a file; these files and MEMORYD_TLS_SERVER_NAME are then used.
func WithTLS(files TLS) Option {
	return func(s *settings) { s.tls = &files }
}

// WithTimeout replaces the default deadline of each call that has one and whose context has no deadline. Values of zero
// or less are ignored.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.timeout = timeout }
}

// WithKeepalive makes the client ping the daemon at this interval, also when no call is active, to detect broken
// connections. The minimum is ten seconds. By default, and with a value of zero or less, the client does not ping.
func WithKeepalive(interval time.Duration) Option {
	return func(s *settings) { s.keepalive = interval }
}

// WithDialOptions adds options to the gRPC connection, for example interceptors. They take precedence over the client's
// own options.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dial = append(s.dial, options...) }
}
