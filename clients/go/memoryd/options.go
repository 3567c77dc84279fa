package memoryd

import (
	"time"

	"google.golang.org/grpc"
)

// Option is one thing that [Connect] is told. What no option tells is looked for; a blank text counts as not told.
type Option func(*settings)

type settings struct {
	address   string
	token     string
	tls       *TLS
	timeout   time.Duration
	keepalive time.Duration
	dial      []grpc.DialOption
}

// WithAddress names the daemon: "unix:PATH", "HOST:PORT" or "[::1]:PORT". Without it, it is the first of
// MEMORYD_ADDRESS, what the daemon has noted in the state directory, and its default socket.
func WithAddress(address string) Option {
	return func(s *settings) { s.address = address }
}

// WithToken is the bearer token to show over TCP. Without it, it is the first line of the file that MEMORYD_TOKEN_FILE
// names, or on this machine of "memoryd.token" in the state directory. None is sent over a Unix socket.
func WithToken(token string) Option {
	return func(s *settings) { s.token = token }
}

// WithTLS has the client speak TLS over TCP. Without it, it does where MEMORYD_TLS is 1, or is not set and
// MEMORYD_TLS_CA, MEMORYD_TLS_CERT or MEMORYD_TLS_KEY names a file; with these files, and with the name that
// MEMORYD_TLS_SERVER_NAME gives.
func WithTLS(files TLS) Option {
	return func(s *settings) { s.tls = &files }
}

// WithTimeout replaces the documented deadline of each call that has one and whose context has none. Zero and less
// replace nothing.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.timeout = timeout }
}

// WithKeepalive has the client ping the daemon at this interval, also without a call under way, so that a connection
// that is dead is noticed. Less than ten seconds counts as ten; zero and less mean never, as without this option.
func WithKeepalive(interval time.Duration) Option {
	return func(s *settings) { s.keepalive = interval }
}

// WithDialOptions are further options of the gRPC connection, such as interceptors. They come last, and so win.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dial = append(s.dial, options...) }
}
