//! How a call is made: within its deadline, with retries, and cancelled when the client is closed.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Code, Request, Response, Status};

use crate::dial::Connection;
use crate::error::Error;
use crate::policy::RetryPolicy;

/// The maximum deadline that is sent to the daemon; the wire format cannot represent much longer ones.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How much earlier than the client the daemon may reach the same deadline.
const AHEAD: Duration = Duration::from_millis(50);

/// The end of a call's deadline, and its length.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    within: Duration,
}

impl Deadline {
    pub(crate) fn after(within: Duration) -> Self {
        let within = within.min(LONGEST);
        Self { at: Instant::now() + within, within }
    }

    /// Whether an error was caused by the deadline. The daemon ends the call at the same deadline, possibly a moment
    /// earlier, and not always with DEADLINE_EXCEEDED.
    fn cut_off(&self, error: &Error) -> bool {
        let near = self.at.saturating_duration_since(Instant::now()) < AHEAD;
        let ended = match error.code() {
            Code::DeadlineExceeded => true,
            Code::Cancelled | Code::Unknown => near,
            _ => false,
        };
        ended && error.reason().is_empty()
    }

    pub(crate) fn error(&self) -> Error {
        Error::local(Code::DeadlineExceeded, format!("no answer within {:?}", self.within))
    }
}

pub(crate) fn cancelled() -> Error {
    Error::local(Code::Cancelled, "the call was cancelled")
}

/// Repeats the call until it succeeds, fails with an error that is not retried, reaches its deadline, or the client is
/// closed.
pub(crate) async fn call<Message, Answer, Attempt, Attempting>(
    connection: &Connection,
    policy: &RetryPolicy,
    deadline: Option<Deadline>,
    message: Message,
    attempt: Attempt,
) -> Result<Answer, Error>
where
    Message: Clone,
    Attempt: FnMut(Request<Message>) -> Attempting,
    Attempting: Future<Output = Result<Response<Answer>, Status>>,
{
    let trying = persist(policy, deadline, message, attempt);
    connection.closed().run_until_cancelled(trying).await.unwrap_or_else(|| Err(cancelled()))
}

async fn persist<Message, Answer, Attempt, Attempting>(
    policy: &RetryPolicy,
    deadline: Option<Deadline>,
    message: Message,
    mut attempt: Attempt,
) -> Result<Answer, Error>
where
    Message: Clone,
    Attempt: FnMut(Request<Message>) -> Attempting,
    Attempting: Future<Output = Result<Response<Answer>, Status>>,
{
    let mut pauses = policy.pauses();
    loop {
        let failure = match once(deadline, message.clone(), &mut attempt).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let pause = pauses.next().filter(|_| policy.retries(failure.code()));
        match pause {
            // If the next retry would exceed the deadline, return the last error instead of DEADLINE_EXCEEDED.
            Some(pause) if deadline.is_none_or(|deadline| Instant::now() + pause < deadline.at) => sleep(pause).await,
            _ => return Err(failure),
        }
    }
}

async fn once<Message, Answer, Attempting>(
    deadline: Option<Deadline>,
    message: Message,
    attempt: &mut impl FnMut(Request<Message>) -> Attempting,
) -> Result<Answer, Error>
where
    Attempting: Future<Output = Result<Response<Answer>, Status>>,
{
    let mut request = Request::new(message);
    let Some(deadline) = deadline else {
        return Ok(attempt(request).await?.into_inner());
    };
    request.set_timeout(deadline.at.saturating_duration_since(Instant::now()));
    match timeout_at(deadline.at, attempt(request)).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => {
            let error = Error::from(status);
            Err(if deadline.cut_off(&error) { deadline.error() } else { error })
        }
        Err(_) => Err(deadline.error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const SECOND: Duration = Duration::from_secs(1);

    /// Makes a call whose attempts have the given outcomes, in order; returns the final outcome and the number of
    /// attempts.
    async fn persisting(within: Duration, ends: Vec<Result<(), Status>>) -> (Result<(), Error>, usize) {
        let remaining = RefCell::new(ends.into_iter());
        let tried = RefCell::new(0);
        let attempt = |_: Request<()>| {
            *tried.borrow_mut() += 1;
            let end = remaining.borrow_mut().next();
            async move {
                match end {
                    Some(end) => end.map(Response::new),
                    None => std::future::pending().await,
                }
            }
        };
        let outcome = persist(RetryPolicy::shared(), Some(Deadline::after(within)), (), attempt).await;
        let tried = *tried.borrow();
        (outcome, tried)
    }

    fn unavailable() -> Result<(), Status> {
        Err(Status::unavailable("stopping"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_comes_back_is_found() {
        let (outcome, tried) = persisting(5 * SECOND, vec![unavailable(), unavailable(), Ok(())]).await;
        assert!(outcome.is_ok());
        assert_eq!(tried, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn five_attempts_are_all() {
        let (outcome, tried) = persisting(60 * SECOND, (0..9).map(|_| unavailable()).collect()).await;
        assert_eq!(outcome.unwrap_err().code(), Code::Unavailable);
        assert_eq!(tried, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_else_is_tried_again() {
        let (outcome, tried) = persisting(5 * SECOND, vec![Err(Status::aborted("during a run")), Ok(())]).await;
        assert_eq!(outcome.unwrap_err().code(), Code::Aborted);
        assert_eq!(tried, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_its_deadline() {
        let begin = Instant::now();
        let (outcome, tried) = persisting(2 * SECOND, vec![unavailable()]).await;
        let error = outcome.unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::DeadlineExceeded, "no answer within 2s"));
        assert_eq!((begin.elapsed(), tried), (2 * SECOND, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_beyond_the_deadline_is_not_waited_for() {
        for (within, attempts) in [(50, 1), (700, 3), (2000, 5)] {
            let begin = Instant::now();
            let ends = (0..9).map(|_| unavailable()).collect();
            let (outcome, tried) = persisting(Duration::from_millis(within), ends).await;
            assert_eq!(outcome.unwrap_err().code(), Code::Unavailable);
            assert_eq!(tried, attempts);
            assert!(begin.elapsed() < Duration::from_millis(within), "{within} ms: {:?}", begin.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_daemon_cuts_off_at_the_deadline_has_the_code_of_the_deadline() {
        for (within, code) in [(30, Code::DeadlineExceeded), (2000, Code::Cancelled)] {
            let (outcome, _) = persisting(Duration::from_millis(within), vec![Err(Status::cancelled("cut off"))]).await;
            assert_eq!(outcome.unwrap_err().code(), code, "{within}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_deadline_is_too_long() {
        let (outcome, _) = persisting(Duration::MAX, vec![Ok(())]).await;
        assert!(outcome.is_ok());
    }
}
