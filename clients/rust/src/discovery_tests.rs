use std::sync::atomic::{AtomicU32, Ordering};

use tonic::transport::Endpoint;

use super::*;

/// A temporary home directory, removed at the end of the test.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("memoryd-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    fn find(&self, options: &Options, variables: &[(&str, &str)]) -> Result<Target, ConnectError> {
        Target::find(options, &Environment::of(variables, &self.0))
    }

    fn address(&self, variables: &[(&str, &str)]) -> String {
        self.find(&Options::new(), variables).unwrap().addresses.to_string()
    }

    fn socket(&self, name: &str) -> String {
        format!("unix:{}", self.0.join(name).display())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LOCAL: &str = "127.0.0.1:7627";
const REMOTE: &str = "memory.example:7627";

#[test]
fn the_argument_goes_before_the_variable_and_that_before_what_a_daemon_noted() {
    let home = Home::new();
    home.write(".openclaw/memoryd.endpoint.json", r#"{"addresses": ["127.0.0.1:1"]}"#);
    assert_eq!(home.address(&[]), "127.0.0.1:1");
    assert_eq!(home.address(&[("MEMORYD_ADDRESS", LOCAL)]), LOCAL);
    assert_eq!(home.address(&[("MEMORYD_ADDRESS", "  ")]), "127.0.0.1:1");
    let options = Options::new().address("[::1]:2");
    assert_eq!(home.find(&options, &[("MEMORYD_ADDRESS", LOCAL)]).unwrap().addresses.to_string(), "[::1]:2");
}

#[test]
fn of_what_a_daemon_noted_a_socket_counts_only_while_it_is_there() {
    let home = Home::new();
    let socket = home.socket("m.sock");
    let note = format!(r#"{{"addresses": ["{socket}", "127.0.0.1:1"], "pid": 1}}"#);
    home.write(".openclaw/memoryd.endpoint.json", &note);
    assert_eq!(home.address(&[]), "127.0.0.1:1");
    home.write("m.sock", "");
    assert_eq!(home.address(&[]), socket);
}

#[test]
fn a_note_that_makes_no_sense_is_none() {
    let home = Home::new();
    for note in ["", "{", "[]", r#"{"addresses": 7}"#, r#"{"addresses": [7, "nowhere"]}"#] {
        home.write(".openclaw/memoryd.endpoint.json", note);
        assert_eq!(home.address(&[]), home.socket(".openclaw/run/memoryd.sock"), "{note}");
    }
}

#[test]
fn without_a_note_the_daemons_usual_socket_is_dialled() {
    let home = Home::new();
    assert_eq!(home.address(&[]), home.socket(".openclaw/run/memoryd.sock"));
    assert_eq!(home.address(&[("XDG_RUNTIME_DIR", "/run/user/7")]), "unix:/run/user/7/memoryd/memoryd.sock");
    assert_eq!(home.address(&[("XDG_RUNTIME_DIR", "")]), home.socket(".openclaw/run/memoryd.sock"));
}

#[test]
fn the_state_directory_is_found_as_the_daemon_finds_it() {
    let home = Home::new();
    home.write(".moltbot/note", "");
    assert_eq!(home.address(&[]), home.socket(".moltbot/run/memoryd.sock"));
    home.write(".clawdbot/note", "");
    assert_eq!(home.address(&[]), home.socket(".clawdbot/run/memoryd.sock"));
    home.write(".openclaw/note", "");
    assert_eq!(home.address(&[]), home.socket(".openclaw/run/memoryd.sock"));
    let moved = [("OPENCLAW_HOME", "~/h"), ("OPENCLAW_STATE_DIR", "undefined")];
    assert_eq!(home.address(&moved), home.socket("h/.openclaw/run/memoryd.sock"));
    let named = [("OPENCLAW_HOME", "~/h"), ("OPENCLAW_STATE_DIR", "~/claw")];
    assert_eq!(home.address(&named), home.socket("h/claw/run/memoryd.sock"));
    assert_eq!(home.address(&[("OPENCLAW_STATE_DIR", "~/claw")]), home.socket("claw/run/memoryd.sock"));
    let both = [("OPENCLAW_STATE_DIR", "/claw"), ("MEMORYD_STATE_DIR", "/own")];
    assert_eq!(home.address(&both), "unix:/own/run/memoryd.sock");
}

#[test]
fn a_token_is_the_argument_or_what_the_named_file_holds_or_the_owners() {
    let home = Home::new();
    let options = Options::new().address(LOCAL);
    let token = |options: &Options, variables: &[(&str, &str)]| home.find(options, variables).unwrap().token;
    assert_eq!(token(&options, &[]), None);
    home.write(".openclaw/memoryd.token", "\n# made by memoryd\n  owner's  \nsecond\n");
    assert_eq!(token(&options, &[]).unwrap(), "owner's");
    home.write("mine", "named\n");
    let named = [("MEMORYD_TOKEN_FILE", "~/mine")];
    assert_eq!(token(&options, &named).unwrap(), "named");
    assert_eq!(token(&options.clone().token("given"), &named).unwrap(), "given");
}

#[test]
fn no_token_is_sent_over_a_unix_socket() {
    let home = Home::new();
    home.write(".openclaw/memoryd.token", "owner's\n");
    let options = Options::new().address("unix:/run/m.sock").token("given").tls(Tls::new());
    let found = home.find(&options, &[]).unwrap();
    assert_eq!((found.token, found.tls), (None, None));
}

#[test]
fn the_owners_token_stays_on_this_machine() {
    let home = Home::new();
    home.write(".openclaw/memoryd.token", "owner's\n");
    let options = Options::new().address(REMOTE).tls(Tls::new());
    assert_eq!(home.find(&options, &[]).unwrap().token, None);
}

#[test]
fn a_token_is_refused_in_the_clear_beyond_this_machine() {
    let home = Home::new();
    let file = home.write("mine", "named\n");
    let named = [("MEMORYD_TOKEN_FILE", file.to_str().unwrap())];
    for (options, variables) in
        [(Options::new().address(REMOTE).token("given"), &[][..]), (Options::new().address(REMOTE), &named[..])]
    {
        let error = home.find(&options, variables).unwrap_err().to_string();
        assert!(error.contains("in the clear") && error.contains(REMOTE), "{error}");
    }
    let spoken = Options::new().address(REMOTE).token("given").tls(Tls::new());
    assert_eq!(home.find(&spoken, &[]).unwrap().token.unwrap(), "given");
}

#[test]
fn a_token_is_sent_in_the_clear_only_if_all_addresses_are_on_loopback() {
    let home = Home::new();
    home.write(".openclaw/memoryd.token", "owner's\n");
    let mixed = Options::new().address(format!("{LOCAL},{REMOTE}"));
    let local = Options::new().address(format!("{LOCAL},localhost:1,[::1]:1"));
    assert_eq!(home.find(&mixed, &[]).unwrap().token, None);
    assert_eq!(home.find(&local, &[]).unwrap().token.unwrap(), "owner's");
    let error = home.find(&mixed.token("given"), &[]).unwrap_err().to_string();
    assert!(error.contains(&format!("{REMOTE} in the clear")), "{error}");
}

#[test]
fn a_file_that_is_named_and_cannot_be_used_is_an_error_that_names_it() {
    let home = Home::new();
    let options = Options::new().address(LOCAL);
    let empty = home.write("empty", "# nothing yet\n");
    for file in ["/nowhere/token", empty.to_str().unwrap()] {
        let error = home.find(&options, &[("MEMORYD_TOKEN_FILE", file)]).unwrap_err().to_string();
        assert!(error.contains(file), "{error}");
    }
    for tls in [Tls::new().ca_file("/nowhere/ca.pem"), Tls::new().ca_file(&empty)] {
        let error = tls.of(Endpoint::from_static("https://memory.example")).err().unwrap().to_string();
        assert!(error.contains("/nowhere/ca.pem") || error.contains(empty.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_certificate_without_its_key_is_an_error() {
    for tls in [Tls::new().cert_file("c.pem"), Tls::new().key_file("k.pem")] {
        let error = tls.of(Endpoint::from_static("https://memory.example")).err().unwrap().to_string();
        assert!(error.contains("needed together"), "{error}");
    }
}

#[test]
fn tls_is_the_argument_or_what_the_variables_name() {
    let home = Home::new();
    let options = Options::new().address(REMOTE);
    let variables = [
        ("MEMORYD_TLS_CA", "/etc/ca.pem"),
        ("MEMORYD_TLS_CERT", "/etc/c.pem"),
        ("MEMORYD_TLS_KEY", "/etc/k.pem"),
        ("MEMORYD_TLS_SERVER_NAME", "memory.internal"),
    ];
    let wanted =
        Tls::new().ca_file("/etc/ca.pem").cert_file("/etc/c.pem").key_file("/etc/k.pem").server_name("memory.internal");
    assert_eq!(home.find(&options, &variables).unwrap().tls, Some(wanted));
    assert_eq!(home.find(&options, &[]).unwrap().tls, None);
    let own = Tls::new().ca_file("/own/ca.pem");
    assert_eq!(home.find(&options.tls(own.clone()), &variables).unwrap().tls, Some(own));
}

#[test]
fn one_variable_says_whether_tls_is_spoken_whatever_else_is_named() {
    let home = Home::new();
    let options = Options::new().address(REMOTE);
    for yes in ["1", " Yes ", "TRUE", "on"] {
        assert_eq!(home.find(&options, &[("MEMORYD_TLS", yes)]).unwrap().tls, Some(Tls::new()), "{yes}");
    }
    for no in ["0", "No", "false", "OFF"] {
        let variables = [("MEMORYD_TLS", no), ("MEMORYD_TLS_CA", "/etc/ca.pem")];
        assert_eq!(home.find(&options, &variables).unwrap().tls, None, "{no}");
    }
    let variables = [("MEMORYD_TLS", "1"), ("MEMORYD_TLS_CA", "/etc/ca.pem"), ("MEMORYD_TLS_SERVER_NAME", "n")];
    let wanted = Tls::new().ca_file("/etc/ca.pem").server_name("n");
    assert_eq!(home.find(&options, &variables).unwrap().tls, Some(wanted));
    let error = home.find(&options, &[("MEMORYD_TLS", "maybe")]).unwrap_err().to_string();
    assert_eq!(error, "MEMORYD_TLS is \"maybe\"; write 1 for yes or 0 for no");
    assert!(home.find(&Options::new().address("unix:/m.sock"), &[("MEMORYD_TLS", "maybe")]).is_ok());
}
