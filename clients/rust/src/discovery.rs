//! Finds the daemon in the same places as the `memoryd` command: the environment and the state directory.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::address::{Address, Addresses};
use crate::environment::Environment;
use crate::error::ConnectError;
use crate::options::Options;
use crate::tls::Tls;

/// The daemon or its replicas to connect to, with token and TLS.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) addresses: Addresses,
    pub(crate) token: Option<String>,
    pub(crate) tls: Option<Tls>,
}

impl Target {
    /// Completes the options from the environment.
    ///
    /// Fails if a file cannot be read, or if the token would be sent to another machine without TLS.
    pub(crate) fn find(options: &Options, environment: &Environment) -> Result<Self, ConnectError> {
        let addresses = match options.address.clone().or_else(|| environment.text("MEMORYD_ADDRESS")) {
            Some(text) => Addresses::parse(&text)?,
            None => running(environment)?.into(),
        };
        if let [Address::Socket(_)] = addresses.list() {
            return Ok(Self { addresses, token: None, tls: None });
        }
        let tls = match &options.tls {
            Some(tls) => Some(tls.clone()),
            None => named_tls(environment)?,
        };
        let token = token(options, environment, &addresses)?;
        if let (Some(_), None, Some(remote)) = (&token, &tls, addresses.remote()) {
            return Err(ConnectError::new(format!(
                "refusing to send the token to {remote} in the clear; use TLS (Options::tls or MEMORYD_TLS) or a loopback address"
            )));
        }
        Ok(Self { addresses, token, tls })
    }
}

/// The state directory of the daemon.
fn state(environment: &Environment) -> PathBuf {
    if let Some(named) = environment.path("MEMORYD_STATE_DIR") {
        return named;
    }
    let home = environment.openclaw_path("OPENCLAW_HOME", None).unwrap_or_else(|| environment.in_home(""));
    if let Some(named) = environment.openclaw_path("OPENCLAW_STATE_DIR", Some(&home)) {
        return named;
    }
    let found =
        [".openclaw", ".clawdbot", ".moltbot"].map(|name| home.join(name)).into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| home.join(".openclaw"))
}

/// The first usable address in the daemon's endpoint file, or else the default socket.
fn running(environment: &Environment) -> Result<Address, ConnectError> {
    let state = state(environment);
    let usable = |address: &Address| !matches!(address, Address::Socket(path) if !path.exists());
    if let Some(address) = noted(&state).into_iter().find(usable) {
        return Ok(address);
    }
    let socket = match environment.path("XDG_RUNTIME_DIR") {
        Some(folder) => folder.join("memoryd/memoryd.sock"),
        None => state.join("run/memoryd.sock"),
    };
    Ok(Address::Socket(socket))
}

/// The addresses in the daemon's endpoint file; none if it does not exist or cannot be read.
fn noted(state: &Path) -> Vec<Address> {
    let note = fs::read_to_string(state.join("memoryd.endpoint.json")).unwrap_or_default();
    let note: Value = serde_json::from_str(&note).unwrap_or_default();
    let addresses = note["addresses"].as_array().into_iter().flatten();
    addresses.filter_map(|address| Address::parse(address.as_str()?).ok()).collect()
}

fn token(options: &Options, environment: &Environment, addresses: &Addresses) -> Result<Option<String>, ConnectError> {
    if let Some(token) = &options.token {
        return Ok(Some(token.clone()));
    }
    if let Some(file) = environment.path("MEMORYD_TOKEN_FILE") {
        let text = fs::read_to_string(&file).map_err(|error| ConnectError::unreadable(&file, error))?;
        let token = first_token(&text);
        return match token {
            Some(_) => Ok(token),
            None => Err(ConnectError::new(format!("the token file {} contains no token", file.display()))),
        };
    }
    if addresses.remote().is_some() {
        return Ok(None);
    }
    let file = state(environment).join("memoryd.token");
    match fs::read_to_string(&file) {
        Ok(text) => Ok(first_token(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ConnectError::unreadable(&file, error)),
    }
}

/// The first line that is neither blank nor a comment.
fn first_token(text: &str) -> Option<String> {
    text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned)
}

fn named_tls(environment: &Environment) -> Result<Option<Tls>, ConnectError> {
    let asked = environment.flag("MEMORYD_TLS")?;
    let [ca, cert, key] = ["MEMORYD_TLS_CA", "MEMORYD_TLS_CERT", "MEMORYD_TLS_KEY"].map(|name| environment.path(name));
    if !asked.unwrap_or(ca.is_some() || cert.is_some() || key.is_some()) {
        return Ok(None);
    }
    let mut tls = Tls::new();
    tls = ca.into_iter().fold(tls, Tls::ca_file);
    tls = cert.into_iter().fold(tls, Tls::cert_file);
    tls = key.into_iter().fold(tls, Tls::key_file);
    Ok(Some(environment.text("MEMORYD_TLS_SERVER_NAME").into_iter().fold(tls, Tls::server_name)))
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
