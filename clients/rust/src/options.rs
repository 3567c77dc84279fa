//! Connection options.

use std::time::Duration;

use crate::tls::Tls;

/// Connection options. Values that are not set are looked up in the same places as by the `memoryd` command (see the
/// crate's documentation).
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
    /// Options without any values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The address of the daemon: `unix:PATH`, `HOST:PORT` or `[::1]:PORT`. The TCP addresses of several replicas are
    /// separated by commas: `a.example:7627,b.example:7627`. Calls alternate between the replicas that are connected.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// The bearer token. It is not sent over a Unix socket.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Enables TLS over TCP; ignored for a Unix socket.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The deadline of each call, instead of its default deadline; does not apply to `sync` and `watch`.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The interval of keepalive pings, also when no call is active. Default: no pings. The daemon accepts one every
    /// ten seconds.
    #[must_use]
    pub fn keepalive(mut self, interval: Duration) -> Self {
        self.keepalive = Some(interval);
        self
    }
}
