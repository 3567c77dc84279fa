//! The errors of calls and of connecting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::transport;

/// A call whose status is not OK.
///
/// ```
/// use memoryd_client::{Client, Error, v1::MemoryGetRequest};
///
/// async fn note_of(client: &Client, path: &str) -> Result<Option<String>, Error> {
///     match client.get(MemoryGetRequest { path: path.to_owned(), ..Default::default() }).await {
///         Ok(read) => Ok(Some(read.text)),
///         Err(error) if error.reason() == "FILE_NOT_FOUND" => Ok(None),
///         Err(error) => Err(error),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Error(Box<Failure>);

#[derive(Clone, Debug)]
struct Failure {
    code: Code,
    reason: String,
    message: String,
    metadata: BTreeMap<String, String>,
    violations: Vec<Violation>,
    retry_after: Option<Duration>,
}

/// An invalid field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the field.
    pub field: String,
    /// Why the field is invalid.
    pub description: String,
}

impl Error {
    /// The gRPC status code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The gRPC name of the code, for example `NOT_FOUND`.
    #[must_use]
    pub fn code_name(&self) -> &'static str {
        name_of(self.0.code)
    }

    /// The name of the `ErrorReason` without its prefix, for example `INDEX_BUSY`; empty for a status that gRPC itself
    /// created, for example if the daemon is not running.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// What is wrong, with the value, and what to do.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The values that the message refers to, by name.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// All invalid fields of the request; empty unless the reason is `INVALID_REQUEST`.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.0.violations
    }

    /// The time to wait before a retry; None if a retry does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// An error that the client itself created.
    pub(crate) fn local(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Failure {
            code,
            reason: String::new(),
            message: message.into(),
            metadata: BTreeMap::new(),
            violations: Vec::new(),
            retry_after: None,
        }))
    }
}

impl From<Status> for Error {
    /// Details that cannot be decoded are omitted.
    fn from(status: Status) -> Self {
        if let Some((code, message)) = transport::meaning(&status) {
            return Self::local(code, message);
        }
        let mut error = Self::local(status.code(), status.message());
        if let Some(info) = status.get_details_error_info() {
            error.0.reason = info.reason;
            error.0.metadata = info.metadata.into_iter().collect();
        }
        if let Some(bad) = status.get_details_bad_request() {
            let violations = bad.field_violations.into_iter();
            error.0.violations =
                violations.map(|each| Violation { field: each.field, description: each.description }).collect();
        }
        error.0.retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.0.reason.is_empty() { self.code_name() } else { &self.0.reason };
        write!(out, "{name}: {}", self.0.message)
    }
}

impl std::error::Error for Error {}

/// An error that the client detects before it sends anything: a file that cannot be read, a malformed address, or a
/// token that would be sent without TLS.
#[derive(Clone, Debug)]
pub struct ConnectError {
    message: String,
    source: Option<Arc<io::Error>>,
}

impl ConnectError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// A message, followed by all causes of the error.
    pub(crate) fn caused(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(format!("{what}: {}", transport::words(error)))
    }

    pub(crate) fn unreadable(file: &std::path::Path, source: io::Error) -> Self {
        Self { message: format!("cannot read {}: {source}", file.display()), source: Some(Arc::new(source)) }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|error| error as _)
    }
}

/// The gRPC name of a code.
pub(crate) fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    #[test]
    fn an_error_tells_everything_that_the_status_does() {
        let mut details = ErrorDetails::new();
        details.set_error_info("INVALID_REQUEST", "memoryd", [("request_id".to_owned(), "7f".to_owned())]);
        details.add_bad_request_violation("query", "must not be blank");
        details.add_bad_request_violation("max_results", "must be at least 1");
        details.set_retry_info(Some(Duration::from_millis(1500)));
        let error = Error::from(Status::with_error_details(Code::InvalidArgument, "two fields are bad", details));

        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(error.code_name(), "INVALID_ARGUMENT");
        assert_eq!(error.reason(), "INVALID_REQUEST");
        assert_eq!(error.message(), "two fields are bad");
        assert_eq!(error.metadata()["request_id"], "7f");
        let fields: Vec<_> = error.violations().iter().map(|each| (&*each.field, &*each.description)).collect();
        assert_eq!(fields, [("query", "must not be blank"), ("max_results", "must be at least 1")]);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1500)));
        assert_eq!(error.to_string(), "INVALID_REQUEST: two fields are bad");
    }

    #[test]
    fn a_status_of_grpc_itself_has_no_reason() {
        let error = Error::from(Status::unimplemented("no such method"));
        assert_eq!(error.reason(), "");
        assert!(error.metadata().is_empty() && error.violations().is_empty() && error.retry_after().is_none());
        assert_eq!(error.to_string(), "UNIMPLEMENTED: no such method");
    }

    #[test]
    fn details_that_cannot_be_read_are_left_out() {
        let status = Status::with_details(Code::NotFound, "gone", b"\xff\xff no status".to_vec().into());
        let error = Error::from(status);
        assert_eq!((error.code(), error.reason(), error.message()), (Code::NotFound, "", "gone"));
    }

    #[test]
    fn codes_are_named_as_grpc_names_them() {
        for number in 0..=16 {
            let code = Code::from(number);
            let words = name_of(code).replace('_', "").to_lowercase();
            assert_eq!(words, format!("{code:?}").to_lowercase());
        }
    }
}
