//! TLS settings of a client: the trusted certificates and the client certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonic::transport::{ClientTlsConfig, Endpoint, Identity};

use crate::error::ConnectError;
use crate::trust::Trust;

/// TLS settings with PEM files, which [`connect`](crate::connect) reads.
///
/// Without a CA file the certificate authorities of the system are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    server_name: Option<String>,
}

impl Tls {
    /// TLS settings that trust the system's authorities, without a client certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The trusted certificates: those of authorities, or the daemon's own certificate.
    #[must_use]
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// The client certificate, for a daemon that requires one; also needs a key file.
    #[must_use]
    pub fn cert_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.cert_file = Some(file.into());
        self
    }

    /// The private key of that certificate.
    #[must_use]
    pub fn key_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.key_file = Some(file.into());
        self
    }

    /// The name in the daemon's certificate, if it differs from the host in the address. It applies to all addresses of
    /// a client.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Reads the files and configures TLS for an endpoint.
    pub(crate) fn of(&self, endpoint: Endpoint) -> Result<Endpoint, ConnectError> {
        let mut config = ClientTlsConfig::new();
        config = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => {
                config.identity(Identity::from_pem(pem(cert, "CERTIFICATE")?, pem(key, "PRIVATE KEY")?))
            }
            (None, None) => config,
            _ => return Err(ConnectError::new("a certificate file and a key file are needed together")),
        };
        config = self.server_name.iter().fold(config, ClientTlsConfig::domain_name);
        let secured = match &self.ca_file {
            Some(file) => endpoint.tls_config_with_verifier(config, Arc::new(trust(file)?)),
            None => endpoint.tls_config(config.with_native_roots()),
        };
        secured.map_err(|error| ConnectError::caused("TLS cannot be set up", &error))
    }
}

fn trust(file: &Path) -> Result<Trust, ConnectError> {
    let unusable = |why| ConnectError::new(format!("{} cannot be used as the CA file: {why}", file.display()));
    Trust::of(pem(file, "CERTIFICATE")?.as_bytes()).map_err(unusable)
}

/// Reads a PEM file. The error names the file if it cannot be read or does not contain the requested kind of data.
fn pem(file: &Path, wanted: &str) -> Result<String, ConnectError> {
    let text = fs::read_to_string(file).map_err(|error| ConnectError::unreadable(file, error))?;
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{wanted}-----"));
    if text.lines().any(begins) {
        return Ok(text);
    }
    Err(ConnectError::new(format!("no {} in {}", wanted.to_lowercase(), file.display())))
}
