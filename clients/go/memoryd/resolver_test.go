package memoryd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func TestAListOfAddressesIsParsed(t *testing.T) {
	for text, wanted := range map[string]string{
		"127.0.0.1:7627":                         "127.0.0.1:7627",
		"127.0.0.1:1,127.0.0.1:2":                "127.0.0.1:1, 127.0.0.1:2",
		"[::1]:1 ,  [::1]:2":                     "[::1]:1, [::1]:2",
		"a.example:1,b.example:1,a.example:2,:7": "a.example:1, b.example:1, a.example:2, 127.0.0.1:7",
		"unix:/run/a,b.sock":                     "unix:/run/a,b.sock",
		numbered(mostAddresses):                  strings.ReplaceAll(numbered(mostAddresses), ",", ", "),
	} {
		found, err := parseAddresses(text)
		if err != nil || found.String() != wanted {
			t.Errorf("%q is %v, %v; not %s", text, found, err, wanted)
		}
	}
}

func numbered(count int) string {
	var list []string
	for i := range count {
		list = append(list, fmt.Sprintf("h:%d", i+1))
	}
	return strings.Join(list, ",")
}

func TestAListThatCannotBeUsedIsRefused(t *testing.T) {
	for text, words := range map[string]string{
		"a:1,":                      "missing",
		",a:1":                      "missing",
		"a:1, ,b:1":                 "missing",
		"a:1,b":                     `"b"`,
		"a:1,b:0":                   `"b:0"`,
		"a:1,unix:/m.sock":          "only HOST:PORT addresses, not unix:/m.sock",
		"a:1,b:1,A:1":               "A:1 twice",
		":1,127.0.0.1:1":            "127.0.0.1:1 twice",
		numbered(mostAddresses + 1): "65 addresses; the maximum is 64",
	} {
		if _, err := parseAddresses(text); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestATokenIsSentUnencryptedOnlyIfAllAddressesAreOnLoopback(t *testing.T) {
	home(t, map[string]string{".openclaw/memoryd.token": "own\n"}, nil)
	mixed, local := "127.0.0.1:1,memory.example:7627", "127.0.0.1:1,localhost:1,[::1]:1"
	_, err := resolve(settings{address: mixed, token: "secret"})
	if err == nil || !strings.Contains(err.Error(), "memory.example:7627 in the clear") {
		t.Errorf("ended with %v", err)
	}
	for text, wanted := range map[string]string{mixed: "", local: "own"} {
		if found, err := resolve(settings{address: text}); err != nil || found.token != wanted {
			t.Errorf("to %s it sends %q, %v", text, found.token, err)
		}
	}
}

// updates is the connection of a resolver. It passes on what the resolver reports.
type updates struct {
	states chan []string
	errors chan error
}

func (u updates) UpdateState(state resolver.State) error {
	var found []string
	for _, endpoint := range state.Endpoints {
		for _, each := range endpoint.Addresses {
			found = append(found, each.Addr+" "+each.ServerName)
		}
	}
	u.states <- found
	return nil
}

func (u updates) ReportError(err error)                              { u.errors <- err }
func (updates) NewAddress([]resolver.Address)                        {}
func (updates) ParseServiceConfig(string) *serviceconfig.ParseResult { return nil }

// names is a name service whose content can be changed.
type names struct {
	lock sync.Mutex
	ips  map[string][]string
}

func (n *names) set(host string, ips ...string) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.ips[host] = ips
}

func (n *names) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	var found []netip.Addr
	for _, ip := range n.ips[host] {
		found = append(found, netip.MustParseAddr(ip))
	}
	if found == nil {
		return nil, &net.DNSError{Name: host, Err: "no such host", IsNotFound: true}
	}
	return found, nil
}

func resolving(t *testing.T, text string, names *names) (resolver.Resolver, updates) {
	t.Helper()
	where, err := parseAddresses(text)
	if err != nil {
		t.Fatal(err)
	}
	seen := updates{states: make(chan []string, 9), errors: make(chan error, 99)}
	builder := resolverBuilder{where: where, lookup: names.lookup}
	built, err := builder.Build(resolver.Target{}, seen, resolver.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(built.Close)
	return built, seen
}

func TestEachIPAddressOfAHostNameIsAnEndpointWithTheNameOfItsAddress(t *testing.T) {
	names := &names{ips: map[string][]string{"replicas": {"10.0.0.2", "10.0.0.1", "::1"}, "other": {"10.0.0.2"}}}
	_, seen := resolving(t, "replicas:7,other:7,localhost:7,10.0.0.9:7", names)
	wanted := []string{
		"10.0.0.1:7 replicas:7", "10.0.0.2:7 replicas:7", "[::1]:7 replicas:7", "localhost:7 localhost:7",
		"10.0.0.9:7 10.0.0.9:7",
	}
	if found := <-seen.states; !slices.Equal(found, wanted) {
		t.Errorf("found %v; not %v", found, wanted)
	}
}

func TestAHostNameIsResolvedAgainAfterAConnectionFailed(t *testing.T) {
	names := &names{ips: map[string][]string{"replicas": {"10.0.0.1"}, "gone": {"10.1.0.1"}}}
	built, seen := resolving(t, "replicas:7,gone:7", names)
	<-seen.states
	names.set("replicas", "10.0.0.2", "10.0.0.3")
	names.set("gone")
	begin := time.Now()
	built.ResolveNow(resolver.ResolveNowOptions{})
	wanted := []string{"10.0.0.2:7 replicas:7", "10.0.0.3:7 replicas:7", "10.1.0.1:7 gone:7"}
	if found := <-seen.states; !slices.Equal(found, wanted) {
		t.Errorf("found %v; not %v", found, wanted)
	}
	if took := time.Since(begin); took > resolveInterval/2 {
		t.Errorf("resolved again after %s", took)
	}
}

func TestAHostNameThatIsUnknownIsResolvedUntilItIsKnown(t *testing.T) {
	names := &names{ips: map[string][]string{}}
	_, seen := resolving(t, "replicas:7", names)
	var unknown *net.DNSError
	if err := <-seen.errors; !errors.As(err, &unknown) || unknown.Name != "replicas" {
		t.Errorf("reported %v", err)
	}
	names.set("replicas", "10.0.0.1")
	if found := <-seen.states; !slices.Equal(found, []string{"10.0.0.1:7 replicas:7"}) {
		t.Errorf("found %v", found)
	}
}

func TestCallsAlternateBetweenTheIPAddressesOfAHostName(t *testing.T) {
	home(t, nil, nil)
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(first.Addr().String())
	second, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skip("this machine has one loopback address:", err)
	}
	var counts [2]atomic.Int64
	for i, listener := range []net.Listener{first, second} {
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			counts[i].Add(1)
			return stream.SendMsg(&memorydv1.MemoryGetResponse{})
		}))
		t.Cleanup(server.Stop)
		go func() { _ = server.Serve(listener) }()
	}
	names := &names{ips: map[string][]string{"replicas": {"127.0.0.1", "127.0.0.2"}}}
	found := target{where: addresses{{host: "replicas", port: port}}}
	resolving := resolverBuilder{where: found.where, lookup: names.lookup}
	connection, err := grpc.NewClient(
		resolving.target(), dialOptions(found, resolving, newConnections(found.where), settings{})...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	service := memorydv1.NewMemoryServiceClient(connection)
	for end := time.Now().Add(20 * time.Second); counts[0].Load() == 0 || counts[1].Load() == 0; {
		if _, err := service.MemoryGet(t.Context(), &memorydv1.MemoryGetRequest{}); err != nil || time.Now().After(end) {
			t.Fatalf("the IP addresses got %d and %d calls: %v", counts[0].Load(), counts[1].Load(), err)
		}
	}
}
