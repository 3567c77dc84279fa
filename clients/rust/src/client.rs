//! The client: one method per call of the `MemoryService`.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status, Streaming};

use crate::call::{Deadline, call};
use crate::dial::{Connection, Transport};
use crate::discovery::Target;
use crate::entries::Entries;
use crate::environment::Environment;
use crate::error::{ConnectError, Error};
use crate::events::Events;
use crate::options::Options;
use crate::policy::RetryPolicy;
use crate::random;
use crate::v1::entry_service_client::EntryServiceClient;
use crate::v1::memory_service_client::MemoryServiceClient;
use crate::v1::{
    ExplainMissRequest, ExplainMissResponse, FlushDecisionRequest, FlushDecisionResponse, ListAgentsRequest,
    ListAgentsResponse, ListFilesRequest, ListFilesResponse, MemoryAppendRequest, MemoryAppendResponse,
    MemoryForgetRequest, MemoryForgetResponse, MemoryGetRequest, MemoryGetResponse, MemoryHistoryRequest,
    MemoryHistoryResponse, MemoryMoveRequest, MemoryMoveResponse, MemoryRecallRequest, MemoryRecallResponse,
    MemoryRestoreRequest, MemoryRestoreResponse, MemorySearchRequest, MemorySearchResponse, MemoryWriteRequest,
    MemoryWriteResponse, SessionAppendRequest, SessionAppendResponse, SessionArchiveRequest, SessionArchiveResponse,
    SessionContextRequest, SessionContextResponse, StatusRequest, StatusResponse, SyncRequest, SyncResponse,
    WatchIndexRequest, WatchIndexResponse,
};

// Default deadlines, as in the protos.
const SEARCH: Duration = Duration::from_secs(5);
const EXPLAIN: Duration = Duration::from_secs(10);
const RECALL: Duration = Duration::from_secs(2);
const GET: Duration = Duration::from_secs(2);
const STATUS: Duration = Duration::from_secs(2);
const STATUS_WITH_PROBE: Duration = Duration::from_secs(10);
const FLUSH: Duration = Duration::from_secs(1);
const APPEND: Duration = Duration::from_secs(5);
const EDIT: Duration = Duration::from_secs(5);
const FORGET: Duration = Duration::from_secs(10);
const CONTEXT: Duration = Duration::from_secs(2);
const ARCHIVE: Duration = Duration::from_secs(10);
const LIST: Duration = Duration::from_secs(2);

/// Returns a client of the daemon in the options, or else of the daemon that discovery finds. The first call connects.
///
/// The connections run on the current tokio runtime and end with it.
///
/// # Errors
///
/// If a file cannot be read, an address is malformed, or the token would be sent to another machine without TLS.
pub async fn connect(options: Options) -> Result<Client, ConnectError> {
    Client::prepare(&options, &Environment::of_process())
}

/// Calls one daemon, or several replicas in turn.
///
/// Clones share the connections and are cheap, so use one client per program. Every method has a default deadline,
/// unless [`with_timeout`](Self::with_timeout) sets another one, retries calls that fail with `UNAVAILABLE`, and fails
/// with [`Error`] if the status is not OK.
#[derive(Clone)]
pub struct Client {
    connection: Arc<Connection>,
    address: Arc<str>,
    unary_timeout: Option<Duration>,
    timeout: Option<Duration>,
}

impl Client {
    pub(crate) fn prepare(options: &Options, environment: &Environment) -> Result<Self, ConnectError> {
        let target = Target::find(options, environment)?;
        let connection = Connection::prepare(&target, options.keepalive)?;
        Ok(Self {
            connection: Arc::new(connection),
            address: target.addresses.to_string().into(),
            unary_timeout: options.timeout,
            timeout: None,
        })
    }

    /// Returns the same client with another deadline for all of its calls, including `sync` and `watch`.
    ///
    /// ```
    /// # use memoryd_client::{Client, Error, v1::{StatusRequest, StatusResponse}};
    /// # use std::time::Duration;
    /// async fn quick(client: &Client) -> Result<StatusResponse, Error> {
    ///     client.with_timeout(Duration::from_millis(500)).status(StatusRequest::default()).await
    /// }
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// The address of the daemon; several are separated by commas.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Closes the connections of this client and its clones; running calls fail with `CANCELLED`. Returns when the file
    /// descriptors are closed. Dropping the last clone also closes them, a moment later.
    pub async fn close(&self) {
        self.connection.close().await;
    }

    /// The calls of the entry service.
    #[must_use]
    pub fn entries(&self) -> Entries {
        Entries::new(self.clone())
    }

    /// The generated stub with this client's connection and token, but without deadlines and retries.
    #[must_use]
    pub fn memory_stub(&self) -> MemoryServiceClient<Transport> {
        MemoryServiceClient::new(self.connection.transport.clone())
    }

    /// The generated stub of the `EntryService`; see [`memory_stub`](Self::memory_stub).
    #[must_use]
    pub fn entry_stub(&self) -> EntryServiceClient<Transport> {
        EntryServiceClient::new(self.connection.transport.clone())
    }

    pub(crate) async fn unary<Message, Answer, Attempt, Attempting>(
        &self,
        documented: Duration,
        message: Message,
        attempt: Attempt,
    ) -> Result<Answer, Error>
    where
        Message: Clone,
        Attempt: FnMut(Request<Message>) -> Attempting,
        Attempting: Future<Output = Result<Response<Answer>, Status>>,
    {
        call(&self.connection, RetryPolicy::shared(), Some(self.deadline(documented)), message, attempt).await
    }

    fn deadline(&self, documented: Duration) -> Deadline {
        Deadline::after(self.timeout.or(self.unary_timeout).unwrap_or(documented))
    }

    async fn follow<Message, Event, Attempt, Attempting>(
        &self,
        message: Message,
        attempt: Attempt,
    ) -> Result<Events<Event>, Error>
    where
        Message: Clone,
        Attempt: FnMut(Request<Message>) -> Attempting,
        Attempting: Future<Output = Result<Response<Streaming<Event>>, Status>>,
    {
        let deadline = self.timeout.map(Deadline::after);
        let events = call(&self.connection, RetryPolicy::shared(), deadline, message, attempt).await?;
        Ok(Events::new(events, deadline, self.connection.closed()))
    }
}

// Each attempt has its own stub, because a stub is cheap and cannot be used by concurrent calls.
macro_rules! attempt {
    ($client:expr, $stub:ident, $method:ident) => {
        |request| {
            let mut stub = $client.$stub();
            async move { stub.$method(request).await }
        }
    };
}
pub(crate) use attempt;

/// The calls of the `MemoryService`.
impl Client {
    /// Searches an agent's memory for `query` and returns the results, best first.
    ///
    /// # Errors
    ///
    /// As described at [`Error`], for this and all other calls.
    pub async fn search(&self, request: MemorySearchRequest) -> Result<MemorySearchResponse, Error> {
        self.unary(SEARCH, request, attempt!(self, memory_stub, memory_search)).await
    }

    /// Runs a search and returns the step that leaves out a file or a line, or its rank if the search finds it.
    pub async fn explain_miss(&self, request: ExplainMissRequest) -> Result<ExplainMissResponse, Error> {
        self.unary(EXPLAIN, request, attempt!(self, memory_stub, explain_miss)).await
    }

    /// Returns what an agent's memory contains about a turn's `text`, as a text to insert before the turn. If a reply is
    /// lost while `remember_shown` is set, its items count as shown, and a retry does not return them.
    pub async fn recall(&self, request: MemoryRecallRequest) -> Result<MemoryRecallResponse, Error> {
        self.unary(RECALL, request, attempt!(self, memory_stub, memory_recall)).await
    }

    /// Reads a range of lines of the memory file `path`.
    pub async fn get(&self, request: MemoryGetRequest) -> Result<MemoryGetResponse, Error> {
        self.unary(GET, request, attempt!(self, memory_stub, memory_get)).await
    }

    /// Returns the status of the daemon and of one agent.
    pub async fn status(&self, request: StatusRequest) -> Result<StatusResponse, Error> {
        let documented = if request.probe { STATUS_WITH_PROBE } else { STATUS };
        self.unary(documented, request, attempt!(self, memory_stub, status)).await
    }

    /// Starts a sync run, or joins the current one, and returns its events; the last one is `completed`.
    pub async fn sync(&self, request: SyncRequest) -> Result<Events<SyncResponse>, Error> {
        self.follow(request, attempt!(self, memory_stub, sync)).await
    }

    /// Returns the state of an agent's index: the current state first, then each change, until the events are dropped.
    pub async fn watch(&self, request: WatchIndexRequest) -> Result<Events<WatchIndexResponse>, Error> {
        self.follow(request, attempt!(self, memory_stub, watch_index)).await
    }

    /// Decides whether the agent should write notes before its context is compacted.
    pub async fn flush_decision(&self, request: FlushDecisionRequest) -> Result<FlushDecisionResponse, Error> {
        self.unary(FLUSH, request, attempt!(self, memory_stub, flush_decision)).await
    }

    /// Appends `text` to today's log, or to `path`. If the request has no `idempotency_key`, a random one is sent, so
    /// that retries are safe.
    pub async fn append(&self, mut request: MemoryAppendRequest) -> Result<MemoryAppendResponse, Error> {
        fill_in(&mut request.idempotency_key);
        self.unary(APPEND, request, attempt!(self, memory_stub, memory_append)).await
    }

    /// Creates, replaces, edits or deletes the memory file `path`, if it still has the content of `expected_sha256`. If it
    /// has another content, the call fails with the reason `CONTENT_CHANGED`. If the request has no `idempotency_key`, a
    /// random one is sent, so that retries are safe.
    pub async fn write(&self, mut request: MemoryWriteRequest) -> Result<MemoryWriteResponse, Error> {
        fill_in(&mut request.idempotency_key);
        self.unary(EDIT, request, attempt!(self, memory_stub, memory_write)).await
    }

    /// Renames the memory file `path`, if it still has the content of `expected_sha256`; a key is sent as for `write`.
    /// It is not called `move`, because this is a keyword.
    pub async fn move_file(&self, mut request: MemoryMoveRequest) -> Result<MemoryMoveResponse, Error> {
        fill_in(&mut request.idempotency_key);
        self.unary(EDIT, request, attempt!(self, memory_stub, memory_move)).await
    }

    /// Returns one page of the writes of the file `path`, or of all files of an agent, newest first.
    pub async fn history(&self, request: MemoryHistoryRequest) -> Result<MemoryHistoryResponse, Error> {
        self.unary(EDIT, request, attempt!(self, memory_stub, memory_history)).await
    }

    /// Restores the content that the write `version_id` replaced or deleted; itself a write, with a key as for `write`.
    pub async fn restore(&self, mut request: MemoryRestoreRequest) -> Result<MemoryRestoreResponse, Error> {
        fill_in(&mut request.idempotency_key);
        self.unary(EDIT, request, attempt!(self, memory_stub, memory_restore)).await
    }

    /// Removes a file, a session or a text from all derived data, and returns the number of removed items.
    pub async fn forget(&self, request: MemoryForgetRequest) -> Result<MemoryForgetResponse, Error> {
        self.unary(FORGET, request, attempt!(self, memory_stub, memory_forget)).await
    }

    /// Returns the memory files that a session loads at its start, and the recall section of its prompt.
    pub async fn session_context(&self, request: SessionContextRequest) -> Result<SessionContextResponse, Error> {
        self.unary(CONTEXT, request, attempt!(self, memory_stub, session_context)).await
    }

    /// Writes the last messages of `transcript` to a new memory file. Retries are safe.
    pub async fn session_archive(&self, request: SessionArchiveRequest) -> Result<SessionArchiveResponse, Error> {
        self.unary(ARCHIVE, request, attempt!(self, memory_stub, session_archive)).await
    }

    /// Appends `records` to the transcript of `session_id`.
    ///
    /// It is not retried after UNAVAILABLE. Repeat it with `expected_records`; without it, a repeated call can append
    /// the records twice.
    pub async fn session_append(&self, request: SessionAppendRequest) -> Result<SessionAppendResponse, Error> {
        let deadline = Some(self.deadline(APPEND));
        let attempt = attempt!(self, memory_stub, session_append);
        call(&self.connection, &RetryPolicy::none(), deadline, request, attempt).await
    }

    /// Returns one page of the agents that the caller is allowed to use.
    pub async fn list_agents(&self, request: ListAgentsRequest) -> Result<ListAgentsResponse, Error> {
        self.unary(LIST, request, attempt!(self, memory_stub, list_agents)).await
    }

    /// Returns one page of an agent's memory files.
    pub async fn list_files(&self, request: ListFilesRequest) -> Result<ListFilesResponse, Error> {
        self.unary(LIST, request, attempt!(self, memory_stub, list_files)).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Sets a random idempotency key if the caller set none, so that retries are safe.
pub(crate) fn fill_in(key: &mut String) {
    if key.is_empty() {
        *key = random::key();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_filled_in_only_where_there_is_none() {
        let (mut given, mut first, mut second) = ("mine".to_owned(), String::new(), String::new());
        [&mut given, &mut first, &mut second].into_iter().for_each(fill_in);
        assert_eq!(given, "mine");
        assert!(first.len() == 32 && first != second, "{first} {second}");
    }

    #[tokio::test]
    async fn a_client_can_be_shared_by_tasks_and_its_calls_be_spawned() {
        fn sendable<T: Send + 'static>(value: T) -> T {
            value
        }
        let client = sendable(connect(Options::new().address("unix:/nowhere/m.sock")).await.unwrap());
        let called = tokio::spawn(async move { client.status(StatusRequest::default()).await });
        let error = called.await.unwrap().unwrap_err();
        assert_eq!(error.code_name(), "UNAVAILABLE");
        assert!(error.message().starts_with("cannot connect to unix:/nowhere/m.sock: "), "{error}");
    }

    #[tokio::test]
    async fn a_client_that_is_closed_cancels() {
        let client = connect(Options::new().address("unix:/nowhere/m.sock")).await.unwrap();
        let other = client.clone();
        let waiting = tokio::spawn(async move { other.search(MemorySearchRequest::default()).await });
        tokio::task::yield_now().await;
        client.close().await;
        assert_eq!(waiting.await.unwrap().unwrap_err().code_name(), "CANCELLED");
        assert_eq!(client.sync(SyncRequest::default()).await.unwrap_err().code_name(), "CANCELLED");
    }
}
