package memoryd

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

// target is what a client connects to, with its token and TLS configuration.
type target struct {
	where addresses
	token string
	tls   *tls.Config
}

// resolve looks up the values that the settings do not contain, in the same places as the memoryd command.
func resolve(given settings) (target, error) {
	where, err := findAddresses(given.address)
	if err != nil || where.isSocket() {
		return target{where: where}, err
	}
	token, err := findToken(given.token, where)
	if err != nil {
		return target{}, err
	}
	files, err := findTLS(given.tls)
	if err != nil {
		return target{}, err
	}
	if remote, is := where.remote(); is && token != "" && files == nil {
		return target{}, refusal(
			"refusing to send the token to %s in the clear; use TLS (WithTLS or MEMORYD_TLS)", remote)
	}
	found := target{where: where, token: token}
	if files != nil {
		found.tls, err = files.config()
	}
	return found, err
}

func findAddresses(given string) (addresses, error) {
	for _, named := range []string{strings.TrimSpace(given), variable("MEMORYD_ADDRESS")} {
		if named != "" {
			return parseAddresses(named)
		}
	}
	running, err := findRunning()
	return addresses{running}, err
}

// findRunning returns the first usable address in the daemon's endpoint file, or else the default socket.
func findRunning() (address, error) {
	state, err := stateDirectory()
	if err != nil {
		return address{}, err
	}
	for _, noted := range notedAddresses(filepath.Join(state, "memoryd.endpoint.json")) {
		where, err := parseAddress(noted)
		if err == nil && (!where.isSocket() || exists(where.socket)) {
			return where, nil
		}
	}
	folder := filepath.Join(state, "run")
	if runtime := variable("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) {
		folder = filepath.Join(runtime, "memoryd")
	}
	return parseAddress("unix:" + filepath.Join(folder, "memoryd.sock"))
}

// notedAddresses returns the addresses that the daemon wrote to its endpoint file; none if there is no readable file.
func notedAddresses(file string) []string {
	var note struct {
		Addresses []string `json:"addresses"`
	}
	content, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(content, &note) != nil {
		return nil
	}
	return note.Addresses
}

func findToken(given string, where addresses) (string, error) {
	if token := strings.TrimSpace(given); token != "" {
		return checkedToken(token, "the token")
	}
	const what = "the token file"
	if named := variable("MEMORYD_TOKEN_FILE"); named != "" {
		content, err := readFile(named, what)
		if err != nil {
			return "", err
		}
		token := firstLine(content)
		if token == "" {
			return "", refusal("%s %s contains no token", what, named)
		}
		return checkedToken(token, what+" "+named)
	}
	if _, is := where.remote(); is {
		return "", nil
	}
	state, err := stateDirectory()
	if err != nil {
		return "", err
	}
	own := filepath.Join(state, "memoryd.token")
	content, err := readFile(own, what)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return checkedToken(firstLine(content), what+" "+own)
}

// checkedToken returns the token, or an error if it contains characters that a header cannot.
func checkedToken(token, what string) (string, error) {
	for _, each := range []byte(token) {
		if each < ' ' || each > '~' {
			return "", refusal("%s contains invalid characters: a token is printable ASCII", what)
		}
	}
	return token, nil
}

// firstLine returns the first line that is neither blank nor a comment.
func firstLine(content []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, len(content)+1)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

func findTLS(given *TLS) (*TLS, error) {
	if given != nil {
		return given, nil
	}
	asked, err := flag("MEMORYD_TLS")
	if err != nil || asked == no {
		return nil, err
	}
	named := TLS{
		CAFile:     variable("MEMORYD_TLS_CA"),
		CertFile:   variable("MEMORYD_TLS_CERT"),
		KeyFile:    variable("MEMORYD_TLS_KEY"),
		ServerName: variable("MEMORYD_TLS_SERVER_NAME"),
	}
	if asked == unsaid && named.CAFile+named.CertFile+named.KeyFile == "" {
		return nil, nil
	}
	return &named, nil
}

func stateDirectory() (string, error) {
	if named := variable("MEMORYD_STATE_DIR"); named != "" {
		return expand(named)
	}
	named := openclawVariable("OPENCLAW_STATE_DIR")
	if named != "" && !startsAtHome(named) {
		return named, nil
	}
	home, err := openclawHome()
	if err != nil {
		return "", err
	}
	if named != "" {
		return filepath.Join(home, named[1:]), nil
	}
	for _, name := range []string{".openclaw", ".clawdbot", ".moltbot"} {
		if folder := filepath.Join(home, name); exists(folder) {
			return folder, nil
		}
	}
	return filepath.Join(home, ".openclaw"), nil
}

// openclawHome returns the directory that OpenClaw's state directory is in.
func openclawHome() (string, error) {
	if named := openclawVariable("OPENCLAW_HOME"); named != "" {
		return expand(named)
	}
	return homeDirectory()
}

// openclawVariable returns the value of a variable of OpenClaw, for which "undefined" and "null" count as not set.
func openclawVariable(name string) string {
	value := variable(name)
	if value == "undefined" || value == "null" {
		return ""
	}
	return value
}

// variable returns the value of an environment variable. A blank value counts as not set.
func variable(name string) string {
	return strings.TrimSpace(os.Getenv(name))
}

// answer is the value of a boolean variable.
type answer int

const (
	unsaid answer = iota
	yes
	no
)

// flag parses a boolean variable. Values other than yes and no are errors.
func flag(name string) (answer, error) {
	switch text := variable(name); strings.ToLower(text) {
	case "":
		return unsaid, nil
	case "1", "true", "yes", "on":
		return yes, nil
	case "0", "false", "no", "off":
		return no, nil
	default:
		return unsaid, refusal("%s is %q; write 1 for yes or 0 for no", name, text)
	}
}

// readFile reads a file. The error contains its name and its purpose.
func readFile(name, what string) ([]byte, error) {
	path, err := expand(name)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, refusal("cannot read %s: %w", what, err)
	}
	return content, nil
}

// expand replaces a leading "~" with the home directory.
func expand(path string) (string, error) {
	if !startsAtHome(path) {
		return path, nil
	}
	home, err := homeDirectory()
	return filepath.Join(home, path[1:]), err
}

func startsAtHome(path string) bool {
	return path == "~" || strings.HasPrefix(path, "~/")
}

func homeDirectory() (string, error) {
	home, err := os.UserHomeDir()
	if err == nil {
		return home, nil
	}
	owner, unknown := user.Current()
	if unknown != nil || owner.HomeDir == "" {
		return "", refusal("cannot determine the home directory: %w; set the address of the daemon", err)
	}
	return owner.HomeDir, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
