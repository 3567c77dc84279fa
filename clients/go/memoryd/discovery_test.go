package memoryd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var variables = []string{
	"MEMORYD_ADDRESS", "MEMORYD_TOKEN_FILE", "MEMORYD_STATE_DIR", "OPENCLAW_STATE_DIR", "OPENCLAW_HOME", "XDG_RUNTIME_DIR",
	"MEMORYD_TLS", "MEMORYD_TLS_CA", "MEMORYD_TLS_CERT", "MEMORYD_TLS_KEY", "MEMORYD_TLS_SERVER_NAME",
}

// authorityPEM is a certificate whose key was discarded.
const authorityPEM = `-----BEGIN CERTIFICATE-----
MIIBijCCAS+gAwIBAgIUBIBx0/sSwL6B5OPi2CPai603OgQwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwObWVtb3J5LmV4YW1wbGUwIBcNMjYxMTIwMTkxMTUyWhgPMjEy
NjEwMjcxOTExNTJaMBkxFzAVBgNVBAMMDm1lbW9yeS5leGFtcGxlMFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAEQMgoG7rwdtdHTJnK4OTL7keO0Qrs1fI5GYtmoYS2
LQndWOKwn+2QBanlpWSqYwc8KKsDJnepcBaUc4ELYhJh/qNTMFEwHQYDVR0OBBYE
FI2Paz6BDoeN1pnpoYovXUj936+0MB8GA1UdIwQYMBaAFI2Paz6BDoeN1pnpoYov
XUj936+0MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAIP0HuKx
AywR0GuUmkAZH8qdzLUPyhgk0mA4sK+o9npEAiEAnbkZXnf2hBFCxDRH69YpUkoP
BDk/gaH8rS01k3a8xdk=
-----END CERTIFICATE-----
`

// home creates a home directory with these files, and sets these variables, in which "~" is the home directory.
func home(t *testing.T, files map[string]string, environment map[string]string) string {
	t.Helper()
	// The names of t.TempDir are too long for a socket path.
	home, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	t.Setenv("HOME", home)
	for _, name := range variables {
		t.Setenv(name, strings.ReplaceAll(environment[name], "HOME", home))
	}
	for name, content := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(content, "HOME", home)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

func TestTheAddressIsFoundWhereTheDaemonsCommandLooks(t *testing.T) {
	noted := map[string]string{"state/memoryd.endpoint.json": `{"addresses": ["unix:HOME/gone", "127.0.0.1:7000"]}`}
	for name, each := range map[string]struct {
		given       string
		files       map[string]string
		environment map[string]string
		wanted      string
	}{
		"the argument comes first": {
			given: "127.0.0.1:1", environment: map[string]string{"MEMORYD_ADDRESS": "127.0.0.1:2"}, wanted: "127.0.0.1:1",
		},
		"then the variable": {
			files: noted, environment: map[string]string{"MEMORYD_ADDRESS": " [::1]:2 ", "MEMORYD_STATE_DIR": "~/state"},
			wanted: "[::1]:2",
		},
		"a blank argument and a blank variable are none": {
			given: " ", files: noted, environment: map[string]string{"MEMORYD_ADDRESS": " ", "MEMORYD_STATE_DIR": "~/state"},
			wanted: "127.0.0.1:7000",
		},
		"a noted socket counts when it is there": {
			files: map[string]string{
				"state/memoryd.endpoint.json": `{"addresses": ["unix:HOME/there", "127.0.0.1:7000"]}`, "there": "",
			},
			environment: map[string]string{"OPENCLAW_STATE_DIR": "HOME/state"}, wanted: "unix:HOME/there",
		},
		"MEMORYD_STATE_DIR takes precedence over OPENCLAW_STATE_DIR": {
			files: noted, environment: map[string]string{"MEMORYD_STATE_DIR": "~/state", "OPENCLAW_STATE_DIR": "~/other"},
			wanted: "127.0.0.1:7000",
		},
		"a note that cannot be read is none": {
			files:       map[string]string{"state/memoryd.endpoint.json": `{"addresses": 7}`},
			environment: map[string]string{"MEMORYD_STATE_DIR": "~/state"}, wanted: "unix:HOME/state/run/memoryd.sock",
		},
		"a noted address that is none is passed over": {
			files:       map[string]string{"state/memoryd.endpoint.json": `{"addresses": ["somewhere", "localhost:9"]}`},
			environment: map[string]string{"MEMORYD_STATE_DIR": "~/state"}, wanted: "localhost:9",
		},
		"the default is in the runtime directory": {
			environment: map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}, wanted: "unix:/run/user/7/memoryd/memoryd.sock",
		},
		"a runtime directory that is not absolute is none": {
			environment: map[string]string{"XDG_RUNTIME_DIR": "run"}, wanted: "unix:HOME/.openclaw/run/memoryd.sock",
		},
		"without one it is in the state directory": {wanted: "unix:HOME/.openclaw/run/memoryd.sock"},
		"the older state directory is used if there is no newer one": {
			files: map[string]string{".moltbot/x": ""}, wanted: "unix:HOME/.moltbot/run/memoryd.sock",
		},
		"the newer one wins": {
			files: map[string]string{".moltbot/x": "", ".openclaw/x": ""}, wanted: "unix:HOME/.openclaw/run/memoryd.sock",
		},
		"the folder of an older OpenClaw comes second": {
			files: map[string]string{".moltbot/x": "", ".clawdbot/x": ""}, wanted: "unix:HOME/.clawdbot/run/memoryd.sock",
		},
		"OpenClaw's home has the state directory": {
			environment: map[string]string{"OPENCLAW_HOME": "~/h", "OPENCLAW_STATE_DIR": "undefined"},
			files:       map[string]string{".openclaw/x": ""}, wanted: "unix:HOME/h/.openclaw/run/memoryd.sock",
		},
		"OpenClaw's home is the tilde of its state directory": {
			environment: map[string]string{"OPENCLAW_HOME": "~/h", "OPENCLAW_STATE_DIR": "~/s"},
			wanted:      "unix:HOME/h/s/run/memoryd.sock",
		},
		"a socket's path may begin at home": {
			environment: map[string]string{"MEMORYD_ADDRESS": "unix:~/m.sock"}, wanted: "unix:HOME/m.sock",
		},
		"a socket's path may be written as in a URL": {given: "unix:///run/m.sock", wanted: "unix:/run/m.sock"},
		"a port alone is one of this machine":        {given: ":7000", wanted: "127.0.0.1:7000"},
	} {
		t.Run(name, func(t *testing.T) {
			home := home(t, each.files, each.environment)
			found, err := resolve(settings{address: each.given})
			if wanted := strings.ReplaceAll(each.wanted, "HOME", home); err != nil || found.where.String() != wanted {
				t.Errorf("found %v, %v; not %s", found.where, err, wanted)
			}
		})
	}
}

func TestARelativeSocketIsThatOfTheDirectoryOfConnect(t *testing.T) {
	home := home(t, nil, nil)
	t.Chdir(home)
	found, err := resolve(settings{address: "unix:.memoryd/m.sock"})
	if err != nil || !strings.HasSuffix(found.where[0].socket, filepath.Join(home, ".memoryd/m.sock")) {
		t.Errorf("found %v, %v", found.where, err)
	}
}

func TestTheTokenIsFoundWhereTheDaemonsCommandLooks(t *testing.T) {
	own := map[string]string{".openclaw/memoryd.token": "own\n", "token": "\n  \n# of the gateway\n named \nsecond\n"}
	secured := &TLS{}
	for name, each := range map[string]struct {
		address     string
		given       string
		tls         *TLS
		environment map[string]string
		wanted      string
	}{
		"the argument comes first": {
			address: "127.0.0.1:1", given: "given", environment: map[string]string{"MEMORYD_TOKEN_FILE": "~/token"},
			wanted: "given",
		},
		"then the file that the variable names": {
			address: "127.0.0.1:1", environment: map[string]string{"MEMORYD_TOKEN_FILE": "~/token"}, wanted: "named",
		},
		"then the owner's, on loopback":     {address: "127.0.0.1:1", wanted: "own"},
		"also by name":                      {address: "localhost:1", wanted: "own"},
		"also with version 6":               {address: "[::1]:1", wanted: "own"},
		"also over TLS":                     {address: "127.0.0.1:1", tls: secured, wanted: "own"},
		"the owner's is not sent elsewhere": {address: "memory.example:1", tls: secured},
		"nor to another address":            {address: "0.0.0.0:1"},
		"a named one is, over TLS":          {address: "memory.example:1", tls: secured, given: "given", wanted: "given"},
		"none is sent over a socket":        {address: "unix:/m.sock", given: "given"},
		"nor is its file needed": {
			address: "unix:/m.sock", environment: map[string]string{"MEMORYD_TOKEN_FILE": "/none"},
		},
		"a state directory without one is none": {
			address: "127.0.0.1:1", environment: map[string]string{"MEMORYD_STATE_DIR": "~/none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			home(t, own, each.environment)
			found, err := resolve(settings{address: each.address, token: each.given, tls: each.tls})
			if err != nil || found.token != each.wanted {
				t.Errorf("found %q, %v; not %q", found.token, err, each.wanted)
			}
		})
	}
}

func TestTLSIsSpokenWhereItIsAskedFor(t *testing.T) {
	for name, each := range map[string]struct {
		given       *TLS
		address     string
		environment map[string]string
		speaks      bool
		name        string
	}{
		"not by itself": {address: "127.0.0.1:1"},
		"by an option":  {address: "127.0.0.1:1", given: &TLS{ServerName: "n"}, speaks: true, name: "n"},
		"by a variable": {
			address:     "127.0.0.1:1",
			environment: map[string]string{"MEMORYD_TLS_CA": "~/ca.pem", "MEMORYD_TLS_SERVER_NAME": "n"},
			speaks:      true, name: "n",
		},
		"by a variable that says so": {
			address:     "127.0.0.1:1",
			environment: map[string]string{"MEMORYD_TLS": "1", "MEMORYD_TLS_SERVER_NAME": "n"},
			speaks:      true, name: "n",
		},
		"in any casing": {address: "127.0.0.1:1", environment: map[string]string{"MEMORYD_TLS": "On"}, speaks: true},
		"a variable may say no": {
			address: "127.0.0.1:1", environment: map[string]string{"MEMORYD_TLS": "0", "MEMORYD_TLS_CA": "/none"},
		},
		"and an option yes": {
			address: "127.0.0.1:1", given: &TLS{}, environment: map[string]string{"MEMORYD_TLS": "no"}, speaks: true,
		},
		"a socket asks no variable": {address: "unix:/m.sock", environment: map[string]string{"MEMORYD_TLS": "x"}},
		"a name alone is no": {
			address: "127.0.0.1:1", environment: map[string]string{"MEMORYD_TLS_SERVER_NAME": "n"},
		},
		"an option wins": {
			address: "127.0.0.1:1", given: &TLS{}, environment: map[string]string{"MEMORYD_TLS_CA": "/none"}, speaks: true,
		},
		"a blank variable is no":     {address: "127.0.0.1:1", environment: map[string]string{"MEMORYD_TLS_CA": " "}},
		"never over a socket":        {address: "unix:/m.sock", given: &TLS{CAFile: "/none"}},
		"nor by a variable":          {address: "unix:/m.sock", environment: map[string]string{"MEMORYD_TLS_CA": "/none"}},
		"also beyond, without token": {address: "memory.example:1", given: &TLS{}, speaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			home(t, map[string]string{"ca.pem": authorityPEM}, each.environment)
			found, err := resolve(settings{address: each.address, tls: each.given})
			if err != nil || (found.tls != nil) != each.speaks {
				t.Fatalf("found %v, %v", found.tls, err)
			}
			if each.speaks && found.tls.ServerName != each.name {
				t.Errorf("looks for %q", found.tls.ServerName)
			}
		})
	}
}

func TestWhatCannotBeUsedIsRefusedInWords(t *testing.T) {
	for name, each := range map[string]struct {
		given       settings
		files       map[string]string
		environment map[string]string
		words       []string
	}{
		"no address":      {given: settings{address: "somewhere"}, words: []string{`"somewhere"`, "unix:PATH"}},
		"no port":         {given: settings{address: "127.0.0.1:0"}, words: []string{`"127.0.0.1:0"`}},
		"a port too high": {given: settings{address: "localhost:65536"}, words: []string{"localhost:65536"}},
		"no brackets":     {given: settings{address: "::1"}, words: []string{`"::1"`, "[IPV6]:PORT"}},
		"no path":         {given: settings{address: "unix:"}, words: []string{`"unix:"`, "path"}},
		"a path too long": {
			given: settings{address: "unix:/" + strings.Repeat("x", 107)}, words: []string{"108 bytes", "allows 107"},
		},
		"a token without TLS": {
			given: settings{address: "memory.example:7627", token: "secret"},
			words: []string{"refusing to send the token to memory.example:7627 in the clear", "TLS"},
		},
		"a token without TLS by the environment": {
			files:       map[string]string{"token": "secret"},
			environment: map[string]string{"MEMORYD_ADDRESS": "10.0.0.1:1", "MEMORYD_TOKEN_FILE": "~/token"},
			words:       []string{"refusing to send the token to 10.0.0.1:1"},
		},
		"a token of two lines": {
			given: settings{address: "127.0.0.1:1", token: "a\nb"}, words: []string{"the token", "printable"},
		},
		"a token file that is not there": {
			environment: map[string]string{"MEMORYD_ADDRESS": "127.0.0.1:1", "MEMORYD_TOKEN_FILE": "HOME/none"},
			words:       []string{"cannot read the token file", "HOME/none"},
		},
		"a token file without a token": {
			files:       map[string]string{"token": "# nothing\n"},
			environment: map[string]string{"MEMORYD_ADDRESS": "127.0.0.1:1", "MEMORYD_TOKEN_FILE": "HOME/token"},
			words:       []string{"no token", "HOME/token"},
		},
		"a token file that is a folder": {
			files: map[string]string{".openclaw/memoryd.token/x": ""}, given: settings{address: "127.0.0.1:1"},
			words: []string{"cannot read the token file", "HOME/.openclaw/memoryd.token"},
		},
		"a word that is neither yes nor no": {
			given: settings{address: "127.0.0.1:1"}, environment: map[string]string{"MEMORYD_TLS": "maybe"},
			words: []string{"MEMORYD_TLS", `"maybe"`, "1", "0"},
		},
		"a CA file that is not there": {
			given: settings{address: "127.0.0.1:1"}, environment: map[string]string{"MEMORYD_TLS_CA": "HOME/ca.pem"},
			words: []string{"cannot read", "trusted certificates", "HOME/ca.pem"},
		},
		"a CA file without a certificate": {
			given: settings{address: "127.0.0.1:1", tls: &TLS{CAFile: "~/ca.pem"}}, files: map[string]string{"ca.pem": "x"},
			words: []string{"contains no PEM certificate", "ca.pem"},
		},
		"a certificate without its key": {
			given: settings{address: "127.0.0.1:1", tls: &TLS{CertFile: "c.pem"}}, words: []string{"together", "c.pem"},
		},
		"a certificate that is not there": {
			given: settings{address: "127.0.0.1:1", tls: &TLS{CertFile: "HOME/c.pem", KeyFile: "k.pem"}},
			words: []string{"cannot read the client's certificate", "c.pem"},
		},
		"a certificate that is none": {
			given: settings{address: "127.0.0.1:1", tls: &TLS{CertFile: "~/c.pem", KeyFile: "~/c.pem"}},
			files: map[string]string{"c.pem": "x"}, words: []string{"cannot be used", "c.pem"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := home(t, each.files, each.environment)
			_, err := resolve(each.given)
			if err == nil {
				t.Fatal("it is taken")
			}
			for _, words := range each.words {
				if words = strings.ReplaceAll(words, "HOME", home); !strings.Contains(err.Error(), words) {
					t.Errorf("says %q, without %q", err, words)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("contains the token: %q", err)
			}
		})
	}
}
