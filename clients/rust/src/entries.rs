//! The calls of the `EntryService`: short entries that an agent stores and finds by their meaning.

use std::time::Duration;

use crate::client::{Client, attempt, fill_in};
use crate::error::Error;
use crate::v1::{
    ForgetRequest, ForgetResponse, ListEntriesRequest, ListEntriesResponse, RecallBlockRequest, RecallBlockResponse,
    RecallRequest, RecallResponse, RememberRequest, RememberResponse, SuggestCaptureRequest, SuggestCaptureResponse,
};

// Default deadlines, as in the protos.
const REMEMBER: Duration = Duration::from_secs(10);
const LOOK_UP: Duration = Duration::from_secs(5);
const SUGGEST: Duration = Duration::from_secs(1);

/// The calls of the entry service, from [`Client::entries`]. If the service is disabled, each fails with
/// `UNIMPLEMENTED`.
#[derive(Clone, Debug)]
pub struct Entries(Client);

impl Entries {
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Stores `text`, unless an equivalent entry exists. If the request has no `idempotency_key`, a random one is sent,
    /// so that retries are safe.
    pub async fn remember(&self, mut request: RememberRequest) -> Result<RememberResponse, Error> {
        fill_in(&mut request.idempotency_key);
        self.0.unary(REMEMBER, request, attempt!(self.0, entry_stub, remember)).await
    }

    /// Returns the entries that are most similar to `query`, best first.
    pub async fn recall(&self, request: RecallRequest) -> Result<RecallResponse, Error> {
        self.0.unary(LOOK_UP, request, attempt!(self.0, entry_stub, recall)).await
    }

    /// Deletes one entry, given its ID or a text that clearly matches it.
    pub async fn forget(&self, request: ForgetRequest) -> Result<ForgetResponse, Error> {
        self.0.unary(LOOK_UP, request, attempt!(self.0, entry_stub, forget)).await
    }

    /// Returns one page of an agent's entries, newest first.
    pub async fn list(&self, request: ListEntriesRequest) -> Result<ListEntriesResponse, Error> {
        self.0.unary(LOOK_UP, request, attempt!(self.0, entry_stub, list_entries)).await
    }

    /// Returns which of a turn's messages are worth storing; stores nothing.
    pub async fn suggest_capture(&self, request: SuggestCaptureRequest) -> Result<SuggestCaptureResponse, Error> {
        self.0.unary(SUGGEST, request, attempt!(self.0, entry_stub, suggest_capture)).await
    }

    /// Returns the entries that are relevant to `prompt`, as a text to insert before it.
    pub async fn recall_block(&self, request: RecallBlockRequest) -> Result<RecallBlockResponse, Error> {
        self.0.unary(LOOK_UP, request, attempt!(self.0, entry_stub, recall_block)).await
    }
}
