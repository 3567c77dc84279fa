package memoryd

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// The maximum length of a socket path on Linux.
const longestSocketPath = 107

// address is an address to connect to: the absolute path of a Unix socket, or a host and a port.
type address struct {
	socket string
	host   string
	port   string
}

// parseAddress parses "unix:PATH", "HOST:PORT" or "[::1]:PORT".
func parseAddress(text string) (address, error) {
	if path, isSocket := strings.CutPrefix(text, "unix:"); isSocket {
		return parseSocket(text, path)
	}
	host, port, err := net.SplitHostPort(text)
	if number, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || number == 0 {
		return address{}, refusal(
			"cannot connect to %q: write unix:PATH, HOST:PORT or [IPV6]:PORT, for example 127.0.0.1:7627", text)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return address{host: host, port: port}, nil
}

func parseSocket(text, path string) (address, error) {
	if strings.HasPrefix(path, "//") {
		path = path[2:]
	}
	if path == "" {
		return address{}, refusal("cannot connect to %q: the path of the socket is missing", text)
	}
	path, err := expand(path)
	if err != nil {
		return address{}, err
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return address{}, refusal("cannot connect to %q: %w", text, err)
	}
	if len(path) > longestSocketPath {
		return address{}, refusal(
			"the socket path %s is %d bytes long; the system allows %d", path, len(path), longestSocketPath)
	}
	return address{socket: path}, nil
}

func (a address) isSocket() bool { return a.socket != "" }

// isLoopback reports whether the address is on this machine.
func (a address) isLoopback() bool {
	if a.isSocket() || strings.EqualFold(a.host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (a address) String() string {
	if a.isSocket() {
		return "unix:" + a.socket
	}
	return net.JoinHostPort(a.host, a.port)
}

// target returns the gRPC target of the address. The passthrough scheme hands it to our dialer unchanged, so that each
// attempt resolves the name again and no HTTP proxy is used.
func (a address) target() string {
	if a.isSocket() {
		return "passthrough:///memoryd"
	}
	return "passthrough:///" + a.String()
}
