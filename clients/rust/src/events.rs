//! The events of a streaming call.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Sleep, sleep_until};
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Streaming;

use crate::call::{Deadline, cancelled};
use crate::error::Error;

/// The events of a `sync` or a `watch`. Dropping it ends the call.
///
/// It also implements [`Stream`](https://docs.rs/futures-core), for stream adapters.
#[must_use = "the call ends when its events are dropped"]
pub struct Events<Event> {
    state: State<Event>,
    deadline: Option<(Deadline, Pin<Box<Sleep>>)>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

enum State<Event> {
    Open(Box<Streaming<Event>>),
    Cancelled,
    Ended,
}

impl<Event> Events<Event> {
    pub(crate) fn new(events: Streaming<Event>, deadline: Option<Deadline>, closed: &CancellationToken) -> Self {
        Self {
            state: State::Open(Box::new(events)),
            deadline: deadline.map(|deadline| (deadline, Box::pin(sleep_until(deadline.at)))),
            closed: Box::pin(closed.clone().cancelled_owned()),
        }
    }

    /// Waits for the next event; None if the call has ended with OK.
    ///
    /// # Errors
    ///
    /// If the call failed; with `CANCELLED` after `cancel` or after the client was closed.
    pub async fn message(&mut self) -> Result<Option<Event>, Error> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await.transpose()
    }

    /// Ends the call. A sync run continues, unless its request says otherwise.
    pub fn cancel(&mut self) {
        self.state = State::Cancelled;
    }

    /// The error with which the client ends the call, if it does.
    fn cut(&mut self, context: &mut Context<'_>) -> Option<Error> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Some(cancelled());
        }
        let (deadline, alarm) = self.deadline.as_mut()?;
        alarm.as_mut().poll(context).is_ready().then(|| deadline.error())
    }
}

impl<Event> Stream for Events<Event> {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let State::Open(events) = &mut self.state else {
            return Poll::Ready(matches!(self.state, State::Cancelled).then(|| Err(cancelled())));
        };
        let next = match Pin::new(&mut **events).poll_next(context) {
            Poll::Ready(Some(Ok(event))) => return Poll::Ready(Some(Ok(event))),
            Poll::Ready(Some(Err(status))) => Some(Err(self.cut(context).unwrap_or_else(|| status.into()))),
            Poll::Ready(None) => None,
            Poll::Pending => match self.cut(context) {
                Some(error) => Some(Err(error)),
                None => return Poll::Pending,
            },
        };
        self.state = State::Ended;
        Poll::Ready(next)
    }
}

impl<Event> fmt::Debug for Events<Event> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Open(_) => "open",
            State::Cancelled => "cancelled",
            State::Ended => "ended",
        };
        out.debug_struct("Events").field("state", &state).finish_non_exhaustive()
    }
}
