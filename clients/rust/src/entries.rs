//! The calls of the `EntryService`: short entries that an agent stores and recalls by meaning.

use std::time::Duration;

use crate::client::{Client, attempt, fill_in};
use crate::error::Error;
use crate::v1::{
    ForgetRequest, ForgetResponse, ListEntriesRequest, ListEntriesResponse, RecallBlockRequest, RecallBlockResponse,
    RecallRequest, RecallResponse, RememberRequest, RememberResponse, SuggestCaptureRequest, SuggestCaptureResponse,
};

// The documented deadlines of the service.
const REMEMBER: Duration = Duration::from_secs(10);
const LOOK_UP: Duration = Duration::from_secs(5);
const SUGGEST: Duration = Duration::from_secs(1);

/// The calls that concern entries; from [`Client::entries`]. Where entries are off, each ends with `UNIMPLEMENTED`.
#[derive(Clone, Debug)]
pub struct Entries(Client);

impl Entries {
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Stores `text` unless an entry says the same. A request without an `idempotency_key` gets one, so that trying
    /// again is safe.
    pub async fn remember(&self, mut request: RememberRequest) -> Result<RememberResponse, Error> {
        fill_in(&mut request.idempotency_key);
        self.0.unary(REMEMBER, request, attempt!(self.0, entry_stub, remember)).await
    }

    /// Finds the entries nearest to `query`, best first.
    pub async fn recall(&self, request: RecallRequest) -> Result<RecallResponse, Error> {
        self.0.unary(LOOK_UP, request, attempt!(self.0, entry_stub, recall)).await
    }

    /// Deletes the entry of an id, or the one that a text clearly means.
    pub async fn forget(&self, request: ForgetRequest) -> Result<ForgetResponse, Error> {
        self.0.unary(LOOK_UP, request, attempt!(self.0, entry_stub, forget)).await
    }

    /// Lists a page of an agent's entries, newest first.
    pub async fn list(&self, request: ListEntriesRequest) -> Result<ListEntriesResponse, Error> {
        self.0.unary(LOOK_UP, request, attempt!(self.0, entry_stub, list_entries)).await
    }

    /// Tells which of a turn's messages would be worth storing; stores nothing.
    pub async fn suggest_capture(&self, request: SuggestCaptureRequest) -> Result<SuggestCaptureResponse, Error> {
        self.0.unary(SUGGEST, request, attempt!(self.0, entry_stub, suggest_capture)).await
    }

    /// Recalls what concerns `prompt`, as a block to put before it.
    pub async fn recall_block(&self, request: RecallBlockRequest) -> Result<RecallBlockResponse, Error> {
        self.0.unary(LOOK_UP, request, attempt!(self.0, entry_stub, recall_block)).await
    }
}
