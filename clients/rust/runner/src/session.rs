//! The current client and its open streams.

use std::collections::HashMap;
use std::time::Duration;

use memoryd_client::prost::{Message, Name};
use memoryd_client::v1::{SyncResponse, WatchIndexResponse};
use memoryd_client::{Client, Error, Events, Options, Tls, connect};
use serde_json::{Value, json};

use crate::messages::{read, written};
use crate::{Trouble, methods};

enum Stream {
    Sync(Events<SyncResponse>),
    Watch(Events<WatchIndexResponse>),
    /// The call failed before its first event; the first `next` returns the error.
    Failed(Error),
}

#[derive(Default)]
pub struct Session {
    client: Option<Client>,
    streams: HashMap<String, Stream>,
}

impl Session {
    /// Handles a request and returns the answer without its `id`.
    pub async fn handle(&mut self, request: &Value) -> Result<Value, Trouble> {
        match request["op"].as_str() {
            Some("connect") => self.connect(request).await,
            Some("call") => methods::call(&self.client(request)?, text(request, "method")?, &request["request"]).await,
            Some("open") => self.open(request).await,
            Some("next") => self.next(request).await,
            Some("cancel") => self.cancel(request),
            Some("close") => {
                self.close().await;
                Ok(json!({ "ok": {} }))
            }
            _ => Err(Trouble::Bad("there is no such op".to_owned())),
        }
    }

    pub async fn close(&mut self) {
        if let Some(client) = self.client.take() {
            client.close().await;
        }
    }

    async fn connect(&mut self, request: &Value) -> Result<Value, Trouble> {
        self.close().await;
        self.streams.clear();
        let client = connect(options(request)).await.map_err(|error| Trouble::Refused(error.to_string()))?;
        self.client = Some(client);
        Ok(json!({ "ok": {} }))
    }

    /// The client, with the deadline of the request.
    fn client(&self, request: &Value) -> Result<Client, Trouble> {
        let client =
            self.client.as_ref().ok_or_else(|| Trouble::Bad("there is no client; connect first".to_owned()))?;
        Ok(milliseconds(request, "timeout_ms").map_or_else(|| client.clone(), |timeout| client.with_timeout(timeout)))
    }

    async fn open(&mut self, request: &Value) -> Result<Value, Trouble> {
        let client = self.client(request)?;
        let opened = match text(request, "method")? {
            "sync" => client.sync(read(&request["request"])?).await.map(Stream::Sync),
            "watch" => client.watch(read(&request["request"])?).await.map(Stream::Watch),
            method => return Err(Trouble::Bad(format!("there is no stream {method:?}"))),
        };
        self.streams.insert(text(request, "stream")?.to_owned(), opened.unwrap_or_else(Stream::Failed));
        Ok(json!({ "ok": {} }))
    }

    async fn next(&mut self, request: &Value) -> Result<Value, Trouble> {
        match self.stream(request)? {
            Stream::Sync(events) => next_event(events).await,
            Stream::Watch(events) => next_event(events).await,
            Stream::Failed(error) => Err(Trouble::Failed(error.clone())),
        }
    }

    fn cancel(&mut self, request: &Value) -> Result<Value, Trouble> {
        match self.stream(request)? {
            Stream::Sync(events) => events.cancel(),
            Stream::Watch(events) => events.cancel(),
            Stream::Failed(_) => {}
        }
        Ok(json!({ "ok": {} }))
    }

    fn stream(&mut self, request: &Value) -> Result<&mut Stream, Trouble> {
        let name = text(request, "stream")?;
        self.streams.get_mut(name).ok_or_else(|| Trouble::Bad(format!("there is no open stream {name:?}")))
    }
}

async fn next_event<E: Message + Name>(events: &mut Events<E>) -> Result<Value, Trouble> {
    Ok(match events.message().await? {
        Some(event) => json!({ "ok": written(&event) }),
        None => json!({ "end": true }),
    })
}

fn options(request: &Value) -> Options {
    let mut options = Options::new();
    options = request["address"].as_str().into_iter().fold(options, Options::address);
    options = request["token"].as_str().into_iter().fold(options, Options::token);
    options = milliseconds(request, "keepalive_ms").into_iter().fold(options, Options::keepalive);
    let named = &request["tls"];
    if named.is_object() {
        let mut tls = Tls::new();
        tls = named["ca_file"].as_str().into_iter().fold(tls, Tls::ca_file);
        tls = named["cert_file"].as_str().into_iter().fold(tls, Tls::cert_file);
        tls = named["key_file"].as_str().into_iter().fold(tls, Tls::key_file);
        options = options.tls(named["server_name"].as_str().into_iter().fold(tls, Tls::server_name));
    }
    options
}

fn text<'a>(request: &'a Value, field: &str) -> Result<&'a str, Trouble> {
    request[field].as_str().ok_or_else(|| Trouble::Bad(format!("{field} is missing")))
}

fn milliseconds(request: &Value, field: &str) -> Option<Duration> {
    request[field].as_u64().map(Duration::from_millis)
}
