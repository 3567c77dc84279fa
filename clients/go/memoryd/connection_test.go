package memoryd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// authority is a self-signed certificate, which client and server both present.
type authority struct {
	certificate, key string
	pair             tls.Certificate
	pool             *x509.CertPool
}

// newAuthority returns a certificate for memory.example, or for another host name or IP address.
func newAuthority(t *testing.T, other ...string) authority {
	t.Helper()
	names, ips := []string{"memory.example"}, []net.IP(nil)
	for _, each := range other {
		names = []string{each}
		if ip := net.ParseIP(each); ip != nil {
			names, ips = nil, []net.IP{ip}
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "memory.example"}, DNSNames: names,
		IPAddresses: ips, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	made := authority{certificate: filepath.Join(folder, "c.pem"), key: filepath.Join(folder, "k.pem")}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for name, content := range map[string][]byte{made.certificate: certificate, made.key: private} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if made.pair, err = tls.X509KeyPair(certificate, private); err != nil {
		t.Fatal(err)
	}
	made.pool = x509.NewCertPool()
	made.pool.AppendCertsFromPEM(certificate)
	return made
}

func answering() *fake {
	return &fake{answers: map[string]proto.Message{"MemoryGet": &memorydv1.MemoryGetResponse{}}}
}

func TestOverTLSTheDaemonAndTheClientProveWhoTheyAre(t *testing.T) {
	alone(t)
	own, listener, server := newAuthority(t), listen(t, "tcp", "127.0.0.1:0"), answering()
	config := &tls.Config{
		Certificates: []tls.Certificate{own.pair}, ClientCAs: own.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	server.serve(t, listener, grpc.Creds(credentials.NewTLS(config)))
	whole := memoryd.TLS{
		CAFile: own.certificate, CertFile: own.certificate, KeyFile: own.key, ServerName: "memory.example",
	}
	another, nameless, anonymous := whole, whole, whole
	another.CAFile, nameless.ServerName = newAuthority(t).certificate, ""
	anonymous.CertFile, anonymous.KeyFile = "", ""
	for name, each := range map[string]struct {
		files  memoryd.TLS
		wanted codes.Code
	}{
		"all is right":                    {whole, codes.OK},
		"signed by somebody else":         {another, codes.Unavailable},
		"of another name than is dialled": {nameless, codes.Unavailable},
		"a client without a certificate":  {anonymous, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t, memoryd.WithAddress(listener.Addr().String()), memoryd.WithToken("secret"),
				memoryd.WithTLS(each.files), memoryd.WithTimeout(20*time.Second))
			if _, err := client.Get(t.Context(), nil); status.Code(err) != each.wanted {
				t.Errorf("ended with %v", err)
			}
		})
	}
	if shown := server.last(t).metadata.Get("authorization"); len(shown) != 1 || shown[0] != "Bearer secret" {
		t.Errorf("showed %v", shown)
	}
}

func TestTheTokenIsShownOnLoopbackAndNotOnASocket(t *testing.T) {
	alone(t)
	server, listener := answering(), listen(t, "tcp", "127.0.0.1:0")
	server.serve(t, listener)
	other := answering()
	for place, wanted := range map[string]int{listener.Addr().String(): 1, other.serveOnSocket(t): 0} {
		client := connect(t, memoryd.WithAddress(place), memoryd.WithToken("secret"))
		if _, err := client.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		asked := server
		if wanted == 0 {
			asked = other
		}
		if shown := asked.last(t).metadata.Get("authorization"); len(shown) != wanted {
			t.Errorf("to %s it showed %v", place, shown)
		}
	}
}

func TestTheLoopbackOfVersionSixIsReached(t *testing.T) {
	alone(t)
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6 loopback:", err)
	}
	answering().serve(t, listener)
	client := connect(t, memoryd.WithAddress(listener.Addr().String()))
	if _, err := client.Get(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestASocketMayHaveAnyPath(t *testing.T) {
	alone(t)
	path := filepath.Join(shortFolder(t), "a %2f?#ü.sock")
	answering().serve(t, listen(t, "unix", path))
	client := connect(t, memoryd.WithAddress("unix:"+path))
	if _, err := client.Get(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestAProxyForTheWebIsNotAsked(t *testing.T) {
	alone(t)
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("NO_PROXY", "")
	listener := listen(t, "tcp", "127.0.0.1:0")
	answering().serve(t, listener)
	client := connect(t, memoryd.WithAddress(listener.Addr().String()))
	if _, err := client.Get(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestADaemonThatRestartsIsFoundAgain(t *testing.T) {
	alone(t)
	path := filepath.Join(shortFolder(t), "m.sock")
	stop := answering().serve(t, listen(t, "unix", path))
	client := connect(t, memoryd.WithAddress("unix:"+path), memoryd.WithTimeout(20*time.Second))
	for range 3 {
		if _, err := client.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		stop()
		begun := make(chan func(), 1)
		time.AfterFunc(300*time.Millisecond, func() { begun <- answering().serve(t, listen(t, "unix", path)) })
		if _, err := client.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		stop = <-begun
	}
}

func TestTwoHundredConnectionsLeaveNoFileDescriptorBehind(t *testing.T) {
	alone(t)
	const held = "/proc/self/fd"
	if _, err := os.Stat(held); err != nil {
		t.Skip("this system does not list file descriptors:", err)
	}
	place := answering().serveOnSocket(t)
	descriptors, goroutines := 0, 0
	for turn := range 200 {
		client, err := memoryd.Connect(memoryd.WithAddress(place))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if turn == 0 {
			descriptors, goroutines = openFiles(t, held), runtime.NumGoroutine()
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// The server in this process closes its end of a connection a moment later.
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if openFiles(t, held) < descriptors && runtime.NumGoroutine() < goroutines {
			return
		}
	}
	t.Errorf("%d descriptors of %d, %d goroutines of %d are left",
		openFiles(t, held), descriptors, runtime.NumGoroutine(), goroutines)
}

func openFiles(t *testing.T, folder string) int {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestClosingEndsCallsUnderWay(t *testing.T) {
	alone(t)
	held := make(chan struct{})
	defer close(held)
	begun := make(chan struct{})
	server := &fake{fail: func(int) error { close(begun); <-held; return nil }}
	client := connect(t, memoryd.WithAddress(server.serveOnSocket(t)), memoryd.WithTimeout(time.Minute))
	ended := make(chan error, 1)
	go func() {
		_, err := client.Get(t.Context(), nil)
		ended <- err
	}()
	<-begun
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("ended with %v", err)
	}
	if _, err := client.Get(t.Context(), nil); status.Code(err) != codes.Canceled {
		t.Errorf("after closing a call ends with %v", err)
	}
}

func TestOneClientServesManyGoroutines(t *testing.T) {
	alone(t)
	client := connect(t, memoryd.WithAddress(answering().serveOnSocket(t)), memoryd.WithTimeout(time.Minute))
	var group sync.WaitGroup
	for range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 20 {
				if _, err := client.Get(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
}

func TestTheServiceConfigIsThatOfAllClients(t *testing.T) {
	shared, err := os.ReadFile("../../service_config.json")
	if err != nil {
		t.Skip("outside the repository:", err)
	}
	own, err := os.ReadFile("service_config.json")
	if err != nil || string(own) != string(shared) {
		t.Errorf("clients/go/memoryd/service_config.json differs from clients/service_config.json: copy it (%v)", err)
	}
}
