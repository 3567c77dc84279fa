package memoryd_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func (f *fake) count() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return len(f.asked)
}

// callUntil repeats a call until the condition holds.
func callUntil(t *testing.T, client *memoryd.Client, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the condition does not hold after 20 seconds")
		}
		if _, err := client.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// callEach repeats a call until each of the servers has answered one.
func callEach(t *testing.T, client *memoryd.Client, servers ...*fake) {
	t.Helper()
	before := make([]int, len(servers))
	for i, server := range servers {
		before[i] = server.count()
	}
	callUntil(t, client, func() bool {
		for i, server := range servers {
			if server.count() == before[i] {
				return false
			}
		}
		return true
	})
}

func TestCallsAlternateBetweenTheAddresses(t *testing.T) {
	alone(t)
	one, other := answering(), answering()
	first, second := listen(t, "tcp", "127.0.0.1:0"), listen(t, "tcp", "127.0.0.1:0")
	one.serve(t, first)
	other.serve(t, second)
	client := connect(t, memoryd.WithAddress(first.Addr().String()+" , "+second.Addr().String()))
	callEach(t, client, one, other)
	before, beforeOther := one.count(), other.count()
	for range 20 {
		if _, err := client.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, gotOther := one.count()-before, other.count()-beforeOther; got != 10 || gotOther != 10 {
		t.Errorf("the servers got %d and %d of 20 calls", got, gotOther)
	}
}

func TestStreamsAlternateBetweenTheAddresses(t *testing.T) {
	alone(t)
	one, other := answering(), answering()
	first, second := listen(t, "tcp", "127.0.0.1:0"), listen(t, "tcp", "127.0.0.1:0")
	one.serve(t, first)
	other.serve(t, second)
	client := connect(t, memoryd.WithAddress(first.Addr().String()+","+second.Addr().String()))
	callEach(t, client, one, other)
	before, beforeOther := one.count(), other.count()
	for range 4 {
		stream, err := client.Sync(t.Context(), &memorydv1.SyncRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range stream.All() {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, gotOther := one.count()-before, other.count()-beforeOther; got != 2 || gotOther != 2 {
		t.Errorf("the servers got %d and %d of 4 streams", got, gotOther)
	}
}

func TestAReplicaThatStopsIsSkippedAndGetsCallsAgainWhenItIsBack(t *testing.T) {
	alone(t)
	one, other := answering(), answering()
	first, second := listen(t, "tcp", "127.0.0.1:0"), listen(t, "tcp", "127.0.0.1:0")
	stop := one.serve(t, first)
	other.serve(t, second)
	client := connect(t, memoryd.WithAddress(first.Addr().String()+","+second.Addr().String()))
	for range 2 {
		callEach(t, client, one, other)
		stop()
		for range 20 {
			if _, err := client.Get(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		one = answering()
		stop = one.serve(t, listen(t, "tcp", first.Addr().String()))
		back := time.Now()
		callUntil(t, client, func() bool { return one.count() > 0 })
		if took := time.Since(back); took > 5*time.Second {
			t.Errorf("the replica got its first call after %s", took)
		}
	}
}

func TestACallThatAReplicaRefusesIsRetriedAtAnother(t *testing.T) {
	alone(t)
	stopping, other := &fake{fail: failing(1 << 30)}, answering()
	first, second := listen(t, "tcp", "127.0.0.1:0"), listen(t, "tcp", "127.0.0.1:0")
	stopping.serve(t, first)
	other.serve(t, second)
	client := connect(t, memoryd.WithAddress(first.Addr().String()+","+second.Addr().String()),
		memoryd.WithTimeout(20*time.Second))
	callUntil(t, client, func() bool { return stopping.count() >= 3 })
}

func TestIfNoReplicaAnswersTheErrorNamesAllAddresses(t *testing.T) {
	alone(t)
	one, other := answering(), answering()
	first, second := listen(t, "tcp", "127.0.0.1:0"), listen(t, "tcp", "127.0.0.1:0")
	stopOne, stopOther := one.serve(t, first), other.serve(t, second)
	client := connect(t, memoryd.WithAddress(first.Addr().String()+","+second.Addr().String()),
		memoryd.WithTimeout(20*time.Second))
	callEach(t, client, one, other)
	stopOne()
	stopOther()
	_, err := client.Get(t.Context(), nil)
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("ended with %v", err)
	}
	for _, place := range []net.Addr{first.Addr(), second.Addr()} {
		for _, message := range []string{err.Error(), status.Convert(err).Message()} {
			if !strings.Contains(message, place.String()) {
				t.Errorf("does not name %s: %s", place, message)
			}
		}
	}
}

func TestOverTLSAllReplicasNeedACertificateForOneName(t *testing.T) {
	alone(t)
	own, foreign, one, other := newAuthority(t), newAuthority(t), answering(), answering()
	first, second := listen(t, "tcp", "127.0.0.1:0"), listen(t, "tcp", "127.0.0.1:0")
	for each, listener := range map[*fake]net.Listener{one: first, other: second} {
		pair := tls.Config{Certificates: []tls.Certificate{own.pair}}
		each.serve(t, listener, grpc.Creds(credentials.NewTLS(&pair)))
	}
	impostor, third := answering(), listen(t, "tcp", "127.0.0.1:0")
	config := tls.Config{Certificates: []tls.Certificate{foreign.pair}}
	impostor.serve(t, third, grpc.Creds(credentials.NewTLS(&config)))
	list := first.Addr().String() + "," + second.Addr().String() + "," + third.Addr().String()
	client := connect(t, memoryd.WithAddress(list), memoryd.WithToken("secret"),
		memoryd.WithTLS(memoryd.TLS{CAFile: own.certificate, ServerName: "memory.example"}))
	callEach(t, client, one, other)
	if impostor.count() != 0 {
		t.Error("a replica whose certificate is not trusted got a call")
	}
}

func TestWithoutAServerNameTheCertificateOfEachReplicaIsForItsOwnHost(t *testing.T) {
	alone(t)
	one, other, misnamed := answering(), answering(), answering()
	var list, trusted []string
	for _, each := range []struct {
		server     *fake
		host, name string
	}{{one, "127.0.0.1", "127.0.0.1"}, {other, "localhost", "localhost"}, {misnamed, "127.0.0.1", "localhost"}} {
		own, listener := newAuthority(t, each.name), listen(t, "tcp", "127.0.0.1:0")
		config := tls.Config{Certificates: []tls.Certificate{own.pair}}
		each.server.serve(t, listener, grpc.Creds(credentials.NewTLS(&config)))
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		list = append(list, net.JoinHostPort(each.host, port))
		content, err := os.ReadFile(own.certificate)
		if err != nil {
			t.Fatal(err)
		}
		trusted = append(trusted, string(content))
	}
	file := filepath.Join(t.TempDir(), "trusted.pem")
	if err := os.WriteFile(file, []byte(strings.Join(trusted, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	client := connect(t, memoryd.WithAddress(strings.Join(list, ",")), memoryd.WithTLS(memoryd.TLS{CAFile: file}))
	callEach(t, client, one, other)
	for range 10 {
		if _, err := client.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if misnamed.count() != 0 {
		t.Error("a replica whose certificate is for another host got a call")
	}
}
