//! How to connect.

use std::time::Duration;

use crate::tls::Tls;

/// How to connect; what is left out is looked for where the `memoryd` command looks (see the crate's first page).
///
/// ```
/// use memoryd_client::{Options, Tls};
///
/// let options = Options::new().address("memory.example:7627").token("secret").tls(Tls::new().ca_file("ca.pem"));
/// ```
#[derive(Clone, Default)]
pub struct Options {
    pub(crate) address: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) keepalive: Option<Duration>,
}

impl Options {
    /// Nothing chosen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the daemon listens: `unix:PATH`, `HOST:PORT` or `[::1]:PORT`.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// The bearer token. It is not sent over a Unix socket, where the daemon asks for none.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// TLS. It is left out over a Unix socket.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How long each call may take, in place of its documented deadline; `sync` and `watch` are not bound by it.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How often to ask a silent daemon whether it is there, also without a call under way. Off unless set; the daemon
    /// allows every ten seconds.
    #[must_use]
    pub fn keepalive(mut self, interval: Duration) -> Self {
        self.keepalive = Some(interval);
        self
    }
}
