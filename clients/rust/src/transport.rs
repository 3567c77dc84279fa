//! The code and message of a status that the client itself created because a connection failed.
//!
//! tonic uses UNKNOWN or CANCELLED for some of these. By gRPC's rules, which the other clients follow, every connection
//! that cannot be opened or is lost is UNAVAILABLE, so that the retry policy applies.

use std::error::Error as StdError;
use std::iter;

use tonic::{Code, Status, TimeoutExpired};

/// The code and the message of a status that the client created; None for a status from the daemon.
pub(crate) fn meaning(status: &Status) -> Option<(Code, String)> {
    let cause = status.source()?;
    if causes(cause).any(|error| error.is::<TimeoutExpired>()) {
        return Some((Code::DeadlineExceeded, "the deadline came before an answer".to_owned()));
    }
    if !matches!(status.code(), Code::Unknown | Code::Cancelled | Code::Unavailable) {
        return None;
    }
    let reset = causes(cause).find_map(|error| error.downcast_ref::<h2::Error>()).filter(|error| error.is_reset());
    let code = reset.and_then(h2::Error::reason).map_or(Code::Unavailable, code_of);
    Some((code, words(cause)))
}

/// The code of a call that the daemon's side reset, by gRPC's table.
fn code_of(reason: h2::Reason) -> Code {
    match reason {
        h2::Reason::REFUSED_STREAM => Code::Unavailable,
        h2::Reason::CANCEL => Code::Cancelled,
        h2::Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        h2::Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    }
}

fn causes<'a>(first: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(first), |&error| error.source())
}

/// All causes that add information, joined; the last one is the message of the system.
pub(crate) fn words(first: &(dyn StdError + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    // tonic's own error contains no information.
    let informative =
        |error: &&(dyn StdError + 'static)| !error.is::<tonic::transport::Error>() || error.source().is_none();
    for text in causes(first).filter(informative).map(ToString::to_string) {
        if !said.iter().any(|before| before.contains(&text)) {
            said.push(text);
        }
    }
    said.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug)]
    struct Broken(Box<dyn StdError + Send + Sync>);

    impl std::fmt::Display for Broken {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("the body cannot be read")
        }
    }

    impl StdError for Broken {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&*self.0)
        }
    }

    fn broken_by(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Status {
        Status::from_error(Box::new(Broken(cause.into())))
    }

    #[test]
    fn a_status_of_the_daemon_is_left_alone() {
        assert_eq!(meaning(&Status::unknown("from afar")), None);
        assert_eq!(meaning(&Status::cancelled("from afar")), None);
    }

    #[test]
    fn a_broken_connection_is_unavailable_and_says_why() {
        let status = broken_by(io::Error::new(io::ErrorKind::ConnectionReset, "reset by peer"));
        assert_eq!(meaning(&status), Some((Code::Unavailable, "the body cannot be read: reset by peer".to_owned())));
    }

    #[test]
    fn a_stream_that_was_reset_has_the_code_of_its_reason() {
        for (reason, code) in [
            (h2::Reason::REFUSED_STREAM, Code::Unavailable),
            (h2::Reason::CANCEL, Code::Cancelled),
            (h2::Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
            (h2::Reason::PROTOCOL_ERROR, Code::Internal),
        ] {
            assert_eq!(code_of(reason), code);
        }
    }

    #[test]
    fn an_error_of_http2_that_resets_no_stream_concerns_the_connection() {
        let status = broken_by(h2::Error::from(h2::Reason::PROTOCOL_ERROR));
        assert_eq!(meaning(&status).map(|found| found.0), Some(Code::Unavailable));
    }
}
