package memoryd

import (
	"context"
	"net"
	"sync"
)

// connections dials an address and keeps track of the open connections, so that Close can wait for them.
type connections struct {
	where address

	lock   sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func newConnections(where address) *connections {
	return &connections{where: where, open: make(map[net.Conn]struct{})}
}

func (c *connections) dial(ctx context.Context, _ string) (net.Conn, error) {
	network, place := "tcp", c.where.String()
	if c.where.isSocket() {
		network, place = "unix", c.where.socket
	}
	connection, err := new(net.Dialer).DialContext(ctx, network, place)
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
