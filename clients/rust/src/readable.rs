//! Removes status details that are not valid base64, because tonic panics when it decodes them.

use std::mem;

use http_body_util::BodyExt;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Response};
use tonic::metadata::MetadataMap;

const DETAILS: &str = "grpc-status-details-bin";

/// Returns the response without details that cannot be decoded, in headers and trailers.
pub(crate) fn readable(answer: Response<Body>) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    leave_out_unreadable(&mut head.headers);
    let body = body.map_frame(|mut frame| {
        if let Some(trailers) = frame.trailers_mut() {
            leave_out_unreadable(trailers);
        }
        frame
    });
    Response::from_parts(head, Body::new(body))
}

fn leave_out_unreadable(headers: &mut HeaderMap) {
    if !headers.contains_key(DETAILS) {
        return;
    }
    let metadata = MetadataMap::from_headers(mem::take(headers));
    let unreadable = metadata.get_bin(DETAILS).is_some_and(|details| details.to_bytes().is_err());
    *headers = metadata.into_headers();
    if unreadable {
        headers.remove(DETAILS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::time::Duration;

    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt};
    use tower::ServiceExt;

    use crate::Error;
    use crate::v1::StatusRequest;
    use crate::v1::memory_service_client::MemoryServiceClient;

    /// The error of a call whose response has a status in its headers, or in trailers after a body.
    async fn ended(details: Option<&'static str>, in_trailers: bool) -> Error {
        let status =
            Status::with_error_details(Code::Unavailable, "busy", ErrorDetails::with_retry_info(Some(Duration::ZERO)));
        let mut headers = HeaderMap::new();
        status.add_header(&mut headers).unwrap();
        if let Some(details) = details {
            headers.insert(DETAILS, details.parse().unwrap());
        }
        let answer = move |_| {
            let mut answer = Response::new(Body::empty());
            if in_trailers {
                let headers = headers.clone();
                *answer.body_mut() = Body::new(Body::empty().with_trailers(async { Some(Ok(headers)) }));
            } else {
                *answer.headers_mut() = headers.clone();
            }
            answer.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            std::future::ready(Ok::<_, Infallible>(answer))
        };
        let mut stub = MemoryServiceClient::new(tower::service_fn(answer).map_response(readable));
        stub.status(StatusRequest::default()).await.unwrap_err().into()
    }

    #[tokio::test]
    async fn details_that_are_not_base64_are_left_out() {
        for in_trailers in [false, true] {
            for details in ["***", "a", "ü"] {
                let error = ended(Some(details), in_trailers).await;
                assert_eq!((error.code(), error.message()), (Code::Unavailable, "busy"), "{details} {in_trailers}");
                assert_eq!(error.retry_after(), None);
            }
        }
    }

    #[tokio::test]
    async fn details_that_can_be_read_stay() {
        for in_trailers in [false, true] {
            let error = ended(None, in_trailers).await;
            assert_eq!(error.retry_after(), Some(Duration::ZERO), "{in_trailers}");
        }
    }
}
