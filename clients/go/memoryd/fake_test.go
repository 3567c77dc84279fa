package memoryd_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// fake is a gRPC server that records its requests and returns configured responses.
type fake struct {
	memorydv1.UnimplementedMemoryServiceServer
	memorydv1.UnimplementedEntryServiceServer

	// answers are responses by the short name of the method. The default is an empty message.
	answers map[string]proto.Message
	// fail returns the error of the n-th call, starting at 1; nil means a response.
	fail func(n int) error
	// hold keeps a Watch open after its first event until the caller disconnects.
	left chan struct{}

	lock  sync.Mutex
	asked []asked
}

type asked struct {
	method    string
	request   proto.Message
	metadata  metadata.MD
	remaining time.Duration
	limited   bool
}

func (f *fake) note(ctx context.Context, method string, request any) error {
	one := asked{method: filepath.Base(method)}
	one.request, _ = request.(proto.Message)
	one.metadata, _ = metadata.FromIncomingContext(ctx)
	if deadline, limited := ctx.Deadline(); limited {
		one.remaining, one.limited = time.Until(deadline), true
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.asked = append(f.asked, one)
	if f.fail == nil {
		return nil
	}
	return f.fail(len(f.asked))
}

func (f *fake) last(t *testing.T) asked {
	t.Helper()
	f.lock.Lock()
	defer f.lock.Unlock()
	if len(f.asked) == 0 {
		t.Fatal("the server was not called")
	}
	return f.asked[len(f.asked)-1]
}

func (f *fake) unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if err := f.note(ctx, info.FullMethod, request); err != nil {
		return nil, err
	}
	if answer := f.answers[filepath.Base(info.FullMethod)]; answer != nil {
		return answer, nil
	}
	return handler(ctx, request)
}

func (f *fake) Sync(request *memorydv1.SyncRequest, stream grpc.ServerStreamingServer[memorydv1.SyncResponse]) error {
	if err := stream.Send(&memorydv1.SyncResponse{SyncId: "s", Sequence: 1}); err != nil {
		return err
	}
	if err := f.note(stream.Context(), "Sync", request); err != nil {
		return err
	}
	return stream.Send(&memorydv1.SyncResponse{SyncId: "s", Sequence: 2})
}

func (f *fake) WatchIndex(
	request *memorydv1.WatchIndexRequest, stream grpc.ServerStreamingServer[memorydv1.WatchIndexResponse],
) error {
	if err := f.note(stream.Context(), "WatchIndex", request); err != nil {
		return err
	}
	for range 3 {
		if err := stream.Send(&memorydv1.WatchIndexResponse{AgentId: request.GetAgentId()}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	close(f.left)
	return status.FromContextError(stream.Context().Err()).Err()
}

// serve runs the fake on a listener until the test ends or stop is called.
func (f *fake) serve(t *testing.T, listener net.Listener, options ...grpc.ServerOption) (stop func()) {
	t.Helper()
	server := grpc.NewServer(append(options, grpc.UnaryInterceptor(f.unary))...)
	memorydv1.RegisterMemoryServiceServer(server, f)
	memorydv1.RegisterEntryServiceServer(server, f)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	stop = sync.OnceFunc(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func listen(t *testing.T, network, place string) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, place)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// shortFolder creates a folder whose path is short enough for a socket.
func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// serveOnSocket runs the fake on a Unix socket and returns its address.
func (f *fake) serveOnSocket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(shortFolder(t), "m.sock")
	f.serve(t, listen(t, "unix", path))
	return "unix:" + path
}

// alone hides all variables and files that could make a test call the daemon of the user who runs it.
func alone(t *testing.T) (home string) {
	t.Helper()
	for _, name := range []string{
		"MEMORYD_ADDRESS", "MEMORYD_TOKEN_FILE", "MEMORYD_STATE_DIR", "OPENCLAW_STATE_DIR", "OPENCLAW_HOME", "XDG_RUNTIME_DIR",
		"MEMORYD_TLS", "MEMORYD_TLS_CA", "MEMORYD_TLS_CERT", "MEMORYD_TLS_KEY", "MEMORYD_TLS_SERVER_NAME",
	} {
		t.Setenv(name, "")
	}
	home = t.TempDir()
	t.Setenv("HOME", home)
	return home
}

func connect(t *testing.T, options ...memoryd.Option) *memoryd.Client {
	t.Helper()
	client, err := memoryd.Connect(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// failing makes the first n calls fail with UNAVAILABLE, like a daemon that is stopping.
func failing(n int) func(int) error {
	return func(call int) error {
		if call <= n {
			return status.Error(codes.Unavailable, "the daemon is stopping")
		}
		return nil
	}
}
