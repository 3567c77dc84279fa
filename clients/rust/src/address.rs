//! The address of a daemon: `unix:PATH`, `HOST:PORT` or `[::1]:PORT`; or the TCP addresses of several replicas.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::error::ConnectError;

/// The maximum number of addresses of a client.
const MOST: usize = 64;

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
        let bracketed = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        // Without brackets, the last part of an IPv6 address could be the port.
        if bracketed.is_none() && host.contains(':') {
            return Err(ill_formed(text));
        }
        let host = bracketed.unwrap_or(host);
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

    /// Whether the host is a name that can have several machines. `localhost` is one machine.
    pub(crate) fn is_name(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Tcp { host, .. } => !host.eq_ignore_ascii_case("localhost") && host.parse::<IpAddr>().is_err(),
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

/// The addresses of one client: a Unix socket, or the TCP addresses of one or more replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses(Vec<Address>);

impl Addresses {
    /// Parses one address, or several TCP addresses that are separated by commas. The path of a socket may contain a
    /// comma, so a text that begins with `unix:` is one address.
    pub(crate) fn parse(text: &str) -> Result<Self, ConnectError> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts.len() == 1 || text.starts_with("unix:") {
            return Ok(Address::parse(text)?.into());
        }
        if parts.len() > MOST {
            return Err(ConnectError::new(format!("{} addresses are given; the maximum is {MOST}", parts.len())));
        }
        let mut list = Vec::new();
        let mut seen = HashSet::new();
        let refusal = |why: String| Err(ConnectError::new(format!("{text:?} cannot be used as addresses: {why}")));
        for part in parts {
            if part.is_empty() {
                return refusal("an address between the commas is missing".to_owned());
            }
            let address = Address::parse(part)?;
            if let Address::Socket(_) = address {
                return refusal(format!("a list can contain only HOST:PORT addresses, not {address}"));
            }
            if !seen.insert(address.to_string().to_lowercase()) {
                return refusal(format!("it contains the address {address} twice"));
            }
            list.push(address);
        }
        Ok(Self(list))
    }

    pub(crate) fn list(&self) -> &[Address] {
        &self.0
    }

    /// The only address, if no host can have several machines.
    pub(crate) fn single(&self) -> Option<&Address> {
        match self.0.as_slice() {
            [only] if !only.is_name() => Some(only),
            _ => None,
        }
    }

    /// The first address that is not on this machine.
    pub(crate) fn remote(&self) -> Option<&Address> {
        self.0.iter().find(|address| !address.is_local())
    }
}

impl From<Address> for Addresses {
    fn from(address: Address) -> Self {
        Self(vec![address])
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        out.write_str(&texts.join(", "))
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
        for text in
            ["", "unix:", "memory.example", ":7627", "host:port", "host:70000", "http://host:1", "[::1:7", "::1:7"]
        {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains("unix:PATH or HOST:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn a_list_of_addresses_is_read() {
        for (text, wanted) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("127.0.0.1:1,127.0.0.1:2", "127.0.0.1:1, 127.0.0.1:2"),
            ("[::1]:1 ,  [::1]:2", "[::1]:1, [::1]:2"),
            ("a.example:1,b.example:1,a.example:2", "a.example:1, b.example:1, a.example:2"),
            ("unix:/run/a,b.sock", "unix:/run/a,b.sock"),
        ] {
            assert_eq!(Addresses::parse(text).unwrap().to_string(), wanted, "{text}");
        }
        assert_eq!(Addresses::parse(&numbered(MOST)).unwrap().list().len(), MOST);
    }

    fn numbered(count: usize) -> String {
        (1..=count).map(|port| format!("h:{port}")).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn a_list_that_cannot_be_used_is_refused() {
        for (text, why) in [
            ("a:1,", "missing"),
            (",a:1", "missing"),
            ("a:1, ,b:1", "missing"),
            ("a:1,b", "\"b\" is not an address"),
            ("a:1,unix:/m.sock", "only HOST:PORT addresses, not unix:/m.sock"),
            ("a:1,b:1,A:1", "A:1 twice"),
            (&numbered(MOST + 1), "65 addresses are given; the maximum is 64"),
        ] {
            let error = Addresses::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
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
