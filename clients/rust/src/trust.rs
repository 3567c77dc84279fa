//! Verifies certificates with a CA file: trusts the authorities in the file, and also the certificates in it
//! themselves.
//!
//! A private daemon often has a self-signed certificate, or one whose authority is not available. rustls trusts
//! neither, because such a certificate has no issuer among the authorities. A certificate in the file is nevertheless
//! meant to be trusted. Its dates and its name are checked as usual.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Verifies a daemon's certificate with the certificates of a CA file.
#[derive(Debug)]
pub(crate) struct Trust {
    authorities: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Trusts the certificates in a PEM text. The error says why they cannot be used.
    pub(crate) fn of(pem: &[u8]) -> Result<Self, String> {
        let named: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(named.iter().cloned());
        let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { authorities, named })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.authorities.verify_server_cert(shown, intermediates, name, stapled, now) {
            // Only errors about the issuer are ignored; the dates were checked before. A self-signed certificate counts
            // as an authority, and its use by a server is one of the "other" errors.
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_)))
                if self.named.iter().any(|each| each == shown) =>
            {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, shown, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    // Certificates for memory.example, valid for ten years from November 2026: a self-signed one, an authority, and one
    // issued by the authority, which is also for 127.0.0.1.
    const OWN: &[u8] = include_bytes!("trust_tests/own.pem");
    const AUTHORITY: &[u8] = include_bytes!("trust_tests/authority.pem");
    const ISSUED: &[u8] = include_bytes!("trust_tests/issued.pem");

    const YEAR_2030: u64 = 1_900_000_000;
    const YEAR_2040: u64 = 2_210_000_000;

    /// Verifies a daemon's certificate with a file in a given year; returns the error message if it is not trusted.
    fn verdict(file: &[u8], shown: &[u8], name: &str, seconds: u64) -> Result<(), String> {
        let shown = CertificateDer::from_pem_slice(shown).unwrap();
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let trust = Trust::of(file).unwrap();
        trust.verify_server_cert(&shown, &[], &name, &[], now).map(drop).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn what_an_authority_issued_is_trusted() {
        assert_eq!(verdict(AUTHORITY, ISSUED, "memory.example", YEAR_2030), Ok(()));
        assert_eq!(verdict(AUTHORITY, ISSUED, "127.0.0.1", YEAR_2030), Ok(()));
    }

    #[test]
    fn the_very_certificate_that_a_daemon_shows_is_trusted() {
        assert_eq!(verdict(OWN, OWN, "memory.example", YEAR_2030), Ok(()));
        assert_eq!(verdict(ISSUED, ISSUED, "memory.example", YEAR_2030), Ok(()));
        assert_eq!(verdict(&[AUTHORITY, OWN].concat(), OWN, "memory.example", YEAR_2030), Ok(()));
    }

    #[test]
    fn no_other_certificate_is_trusted() {
        for (file, shown) in [(OWN, ISSUED), (ISSUED, OWN), (AUTHORITY, OWN), (OWN, AUTHORITY)] {
            let error = verdict(file, shown, "memory.example", YEAR_2030).unwrap_err();
            assert!(error.contains("UnknownIssuer") || error.contains("CaUsedAsEndEntity"), "{error}");
        }
    }

    #[test]
    fn a_certificate_for_another_name_is_refused() {
        for (file, shown) in [(OWN, OWN), (ISSUED, ISSUED), (AUTHORITY, ISSUED)] {
            let error = verdict(file, shown, "elsewhere.example", YEAR_2030).unwrap_err();
            assert!(error.contains("NotValidForName"), "{error}");
        }
    }

    #[test]
    fn a_certificate_that_has_expired_is_refused() {
        for (file, shown) in [(OWN, OWN), (ISSUED, ISSUED), (AUTHORITY, ISSUED)] {
            let error = verdict(file, shown, "memory.example", YEAR_2040).unwrap_err();
            assert!(error.contains("Expired"), "{error}");
        }
    }
}
