package memoryd

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/resolver"
)

const (
	// A host name is resolved again after a connection failed, and also at this interval, because a new replica behind
	// the name does not make a connection fail.
	resolveInterval = 30 * time.Second
	// Minimum time between two resolutions, because each failed attempt to connect requests one.
	resolvePause = time.Second
	// Pause after a resolution without any address.
	resolveRetry = 250 * time.Millisecond
)

// resolverBuilder resolves the addresses of one client. gRPC distributes the calls over the endpoints that it returns:
// one for each address, but for a host name one for each of its IP addresses.
type resolverBuilder struct {
	where addresses
	// named is set if all certificates are for one name, which the TLS configuration contains.
	named bool
	// lookup returns the IP addresses of a host name.
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

func newResolverBuilder(target target) resolverBuilder {
	return resolverBuilder{
		where: target.where,
		named: target.tls != nil && target.tls.ServerName != "",
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}
}

func (resolverBuilder) Scheme() string { return "memoryd" }

// target returns the gRPC target. Its endpoint is the authority of the calls, unless the TLS configuration has a name.
func (b resolverBuilder) target() string {
	if b.where.isSocket() {
		return b.Scheme() + ":///localhost"
	}
	return b.Scheme() + ":///" + b.where[0].String()
}

func (b resolverBuilder) Build(
	_ resolver.Target, connection resolver.ClientConn, _ resolver.BuildOptions,
) (resolver.Resolver, error) {
	ctx, cancel := context.WithCancel(context.Background())
	built := &addressResolver{
		builder: b, connection: connection, cancel: cancel, wake: make(chan struct{}, 1),
		known: make([][]netip.Addr, len(b.where)),
	}
	if !slices.ContainsFunc(b.where, address.isName) {
		return built, connection.UpdateState(built.state())
	}
	built.running.Add(1)
	go built.run(ctx)
	return built, nil
}

// addressResolver resolves the host names of a client until gRPC closes it.
type addressResolver struct {
	builder    resolverBuilder
	connection resolver.ClientConn
	cancel     context.CancelFunc
	running    sync.WaitGroup
	wake       chan struct{}
	// known contains the IP addresses of the last successful resolution of each address that is a host name.
	known [][]netip.Addr
}

// ResolveNow requests a resolution. gRPC calls it after a connection failed.
func (r *addressResolver) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *addressResolver) Close() {
	r.cancel()
	r.running.Wait()
}

func (r *addressResolver) run(ctx context.Context) {
	defer r.running.Done()
	var sent []resolver.Endpoint
	for {
		err := r.resolve(ctx)
		if ctx.Err() != nil {
			return
		}
		state, pause := r.state(), resolvePause
		switch {
		case len(state.Endpoints) == 0:
			r.connection.ReportError(err)
			pause = resolveRetry
		case !slices.EqualFunc(state.Endpoints, sent, sameEndpoint):
			sent = state.Endpoints
			// The error would mean that the addresses are refused; they are resolved again in any case.
			_ = r.connection.UpdateState(state)
		}
		if !r.wait(ctx, pause, pause == resolveRetry) {
			return
		}
	}
}

// wait returns after the pause when a resolution was requested, or at the interval; immediately after the pause if the
// resolution failed. It returns false if the resolver is closed.
func (r *addressResolver) wait(ctx context.Context, pause time.Duration, failed bool) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
	}
	if failed {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-r.wake:
	case <-time.After(resolveInterval - pause):
	}
	return true
}

// resolve resolves all host names, and returns the last error. A name that cannot be resolved keeps its IP addresses.
func (r *addressResolver) resolve(ctx context.Context) error {
	var last error
	var lock sync.Mutex
	var group sync.WaitGroup
	for i, each := range r.builder.where {
		if !each.isName() {
			continue
		}
		group.Add(1)
		go func() {
			defer group.Done()
			found, err := r.builder.lookup(ctx, each.host)
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				last = err
			} else if len(found) > 0 {
				r.known[i] = found
			}
		}()
	}
	group.Wait()
	return last
}

// state returns one endpoint for each different place to connect to, in the order of the addresses.
func (r *addressResolver) state() resolver.State {
	var state resolver.State
	seen := make(map[string]bool)
	add := func(place string, of address) {
		if !seen[place] {
			seen[place] = true
			found := resolver.Address{Addr: place}
			// The name that the certificate at this address must be for. It takes precedence over the TLS configuration.
			if !r.builder.named {
				found.ServerName = of.String()
			}
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{found}})
		}
	}
	for i, each := range r.builder.where {
		switch {
		case each.isSocket():
			add(each.socket, each)
		case each.isName():
			found := slices.Clone(r.known[i])
			slices.SortFunc(found, netip.Addr.Compare)
			for _, ip := range found {
				add(net.JoinHostPort(ip.Unmap().String(), each.port), each)
			}
		default:
			add(each.String(), each)
		}
	}
	return state
}

func sameEndpoint(a, b resolver.Endpoint) bool {
	return a.Addresses[0].Addr == b.Addresses[0].Addr && a.Addresses[0].ServerName == b.Addresses[0].ServerName
}

// isName reports whether the host is a name that can have several machines. The addresses of localhost are one machine,
// so it is one endpoint, and each attempt to connect tries all of them.
func (a address) isName() bool {
	if a.isSocket() || strings.EqualFold(a.host, "localhost") {
		return false
	}
	_, err := netip.ParseAddr(a.host)
	return err != nil
}
