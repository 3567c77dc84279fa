//! The address of a daemon: `unix:PATH`, `HOST:PORT` or `[::1]:PORT`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::error::ConnectError;

/// An address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A Unix socket.
    Socket(PathBuf),
    /// TCP. The host of an IPv6 address has no brackets.
    Tcp { host: String, port: u16 },
}

impl Address {
    /// Parses an address. The error describes the format.
    pub(crate) fn parse(text: &str) -> Result<Self, ConnectError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(ill_formed(text)) } else { Ok(Self::Socket(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| ill_formed(text))?;
        let host = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| ill_formed(text))?;
        if host.is_empty() || host.contains(['[', ']', '/', '@', ' ']) {
            return Err(ill_formed(text));
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }

    /// Whether the address is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Socket(_) => true,
            Self::Tcp { host, .. } => {
                host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(out, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(out, "{host}:{port}"),
        }
    }
}

fn ill_formed(text: &str) -> ConnectError {
    ConnectError::new(format!("{text:?} is not an address: write unix:PATH or HOST:PORT, for example 127.0.0.1:7627"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn every_way_to_write_an_address_is_read() {
        for (text, wanted) in [
            ("unix:/run/m.sock", Address::Socket("/run/m.sock".into())),
            ("unix:///run/m.sock", Address::Socket("/run/m.sock".into())),
            ("unix:.memoryd/m.sock", Address::Socket(".memoryd/m.sock".into())),
            ("127.0.0.1:7627", tcp("127.0.0.1", 7627)),
            ("memory.example:1", tcp("memory.example", 1)),
            ("[::1]:7627", tcp("::1", 7627)),
        ] {
            assert_eq!(Address::parse(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_how_to_write_one() {
        for text in ["", "unix:", "memory.example", ":7627", "host:port", "host:70000", "http://host:1", "[::1:7"] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains("unix:PATH or HOST:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        for (text, local) in [
            ("unix:/run/m.sock", true),
            ("127.0.0.1:1", true),
            ("127.8.0.1:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("localhost.example:1", false),
            ("0.0.0.0:1", false),
            ("192.0.2.7:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            assert_eq!(Address::parse(text).unwrap().is_local(), local, "{text}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for text in ["unix:/run/m.sock", "127.0.0.1:7627", "[::1]:7627"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
    }
}
