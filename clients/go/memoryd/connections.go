package memoryd

import (
	"context"
	"net"
	"sync"
)

// connections dials the places that the resolver returns, and keeps track of the open connections, so that Close can
// wait for them.
type connections struct {
	network string

	lock   sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func newConnections(where addresses) *connections {
	network := "tcp"
	if where.isSocket() {
		network = "unix"
	}
	return &connections{network: network, open: make(map[net.Conn]struct{})}
}

func (c *connections) dial(ctx context.Context, place string) (net.Conn, error) {
	connection, err := new(net.Dialer).DialContext(ctx, c.network, place)
	if err != nil {
		return nil, err
	}
	held := &heldConnection{Conn: connection, holder: c}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.closed {
		_ = connection.Close()
		return nil, net.ErrClosed
	}
	c.open[held] = struct{}{}
	return held, nil
}

// close closes the open connections. gRPC closes them too, but not always before its own Close returns.
func (c *connections) close() {
	c.lock.Lock()
	c.closed = true
	open := c.open
	c.open = nil
	c.lock.Unlock()
	for connection := range open {
		_ = connection.Close()
	}
}

type heldConnection struct {
	net.Conn
	holder *connections
}

func (h *heldConnection) Close() error {
	h.holder.lock.Lock()
	delete(h.holder.open, h)
	h.holder.lock.Unlock()
	return h.Conn.Close()
}
