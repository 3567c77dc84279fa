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

// The maximum number of addresses of a client.
const mostAddresses = 64

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

// parseAddresses parses one address, or several TCP addresses that are separated by commas. The path of a socket may
// contain a comma, so a text that begins with "unix:" is one address.
func parseAddresses(text string) (addresses, error) {
	parts := strings.Split(text, ",")
	if len(parts) == 1 || strings.HasPrefix(text, "unix:") {
		one, err := parseAddress(text)
		return addresses{one}, err
	}
	if len(parts) > mostAddresses {
		return nil, refusal("cannot connect to %d addresses; the maximum is %d", len(parts), mostAddresses)
	}
	var list addresses
	seen := make(map[string]bool)
	for _, part := range parts {
		part = strings.TrimSpace(part)
		if part == "" {
			return nil, refusal("cannot connect to %q: an address between the commas is missing", text)
		}
		one, err := parseAddress(part)
		if err != nil {
			return nil, err
		}
		if one.isSocket() {
			return nil, refusal("cannot connect to %q: a list can contain only HOST:PORT addresses, not %s", text, one)
		}
		key := strings.ToLower(one.String())
		if seen[key] {
			return nil, refusal("cannot connect to %q: it contains the address %s twice", text, one)
		}
		seen[key] = true
		list = append(list, one)
	}
	return list, nil
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

// addresses are the addresses of one client: a socket, or one or more TCP addresses.
type addresses []address

func (a addresses) isSocket() bool { return len(a) == 1 && a[0].isSocket() }

// remote returns the first address that is not on this machine, and false if there is none.
func (a addresses) remote() (address, bool) {
	for _, each := range a {
		if !each.isLoopback() {
			return each, true
		}
	}
	return address{}, false
}

func (a addresses) String() string {
	texts := make([]string, len(a))
	for i, each := range a {
		texts[i] = each.String()
	}
	return strings.Join(texts, ", ")
}
