//! The connections to several replicas: each is kept open, and calls alternate between those that are connected.
//!
//! tonic's own balancer prefers the connection with the fewest pending calls, and does not report which connections
//! failed, so it can neither alternate nor name the addresses in an error.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt;

use crate::address::Address;
use crate::dial::{BoxError, Dialler, Sockets};
use crate::transport::words;

/// The pause after a failed attempt to connect; doubled after each further one, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A connection that is lost sooner than this counts as a failed attempt.
const SHORTEST_CONNECTION: Duration = Duration::from_secs(1);

/// A host name is resolved again after a connection failed, and also at this interval, because a new replica behind the
/// name does not make a connection fail.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// Minimum time between two resolutions, because each failed attempt to connect requests one.
const RESOLVE_PAUSE: Duration = Duration::from_secs(1);

type Lookup = dyn Fn(String, u16) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>> + Send + Sync;

/// A replica: the index of its address and, if the address has a host name, its IP address.
type Key = (usize, Option<SocketAddr>);

/// The state of the connection to one replica.
enum Link {
    /// No attempt to connect has ended since the start or since the connection was lost.
    Connecting,
    Ready(Channel),
    /// The last attempt failed with this message; the next one is under way or follows after a pause.
    Failed(String),
}

type Links = BTreeMap<Key, Link>;

/// The replicas of a client. The first call opens the connections; they are closed when the last clone is dropped.
#[derive(Clone)]
pub struct Replicas(Arc<Shared>);

struct Shared {
    links: watch::Receiver<Links>,
    next: AtomicUsize,
    /// Taken by the first call.
    keeper: Mutex<Option<Keeper>>,
    runtime: Handle,
    stop: CancellationToken,
    _stop_at_drop: DropGuard,
}

impl Replicas {
    /// Prepares the connections to addresses, each with its endpoint. Must be called within a tokio runtime.
    pub(crate) fn prepare(addresses: Vec<(Address, Endpoint)>, sockets: Sockets) -> Self {
        let lookup = |host: String, port| -> Pin<Box<dyn Future<Output = _> + Send>> {
            Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) })
        };
        Self::prepare_with(addresses, sockets, Arc::new(lookup))
    }

    fn prepare_with(addresses: Vec<(Address, Endpoint)>, sockets: Sockets, lookup: Arc<Lookup>) -> Self {
        let connecting = (0..addresses.len()).map(|index| ((index, None), Link::Connecting)).collect();
        let (sender, links) = watch::channel(connecting);
        let stop = sockets.closed.child_token();
        let keeper = Keeper { addresses, lookup, links: sender, sockets };
        Self(Arc::new(Shared {
            links,
            next: AtomicUsize::new(0),
            keeper: Mutex::new(Some(keeper)),
            runtime: Handle::current(),
            _stop_at_drop: stop.clone().drop_guard(),
            stop,
        }))
    }

    pub(crate) async fn call(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let channel = self.pick().await?;
        Ok(channel.oneshot(request).await?)
    }

    /// The connection to the next replica. Waits while none is connected and the first attempts are under way.
    async fn pick(&self) -> Result<Channel, Status> {
        self.start();
        let mut links = self.0.links.clone();
        let settled = self.0.stop.run_until_cancelled(links.wait_for(settled)).await;
        let Some(Ok(links)) = settled else {
            return Err(Status::unavailable("the client is closed"));
        };
        let ready: Vec<&Channel> = links.values().filter_map(channel).collect();
        if ready.is_empty() {
            return Err(Status::unavailable(failures(&links)));
        }
        let turn = self.0.next.fetch_add(1, Ordering::Relaxed);
        Ok(ready[turn % ready.len()].clone())
    }

    fn start(&self) {
        let keeper = self.0.keeper.lock().expect("no thread panics with this lock").take();
        if let Some(keeper) = keeper {
            let stop = self.0.stop.clone();
            self.0.runtime.spawn(async move { stop.run_until_cancelled(Arc::new(keeper).run()).await });
        }
    }
}

fn channel(link: &Link) -> Option<&Channel> {
    match link {
        Link::Ready(channel) => Some(channel),
        Link::Connecting | Link::Failed(_) => None,
    }
}

/// Whether a replica is connected, or the attempts to connect to all of them have failed.
fn settled(links: &Links) -> bool {
    let failed = links.values().all(|link| matches!(link, Link::Failed(_)));
    failed || links.values().any(|link| channel(link).is_some())
}

/// The messages of all replicas, each with its address.
fn failures(links: &Links) -> String {
    let messages = links.values().filter_map(|link| match link {
        Link::Failed(message) => Some(message.as_str()),
        Link::Connecting | Link::Ready(_) => None,
    });
    messages.collect::<Vec<_>>().join("; ")
}

/// Keeps the connections to all replicas open.
struct Keeper {
    addresses: Vec<(Address, Endpoint)>,
    lookup: Arc<Lookup>,
    links: watch::Sender<Links>,
    sockets: Sockets,
}

impl Keeper {
    async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        for (index, (address, _)) in self.addresses.iter().enumerate() {
            match address {
                Address::Tcp { host, port } if address.is_name() => {
                    tasks.spawn(self.clone().follow(index, host.clone(), *port));
                }
                _ => {
                    tasks.spawn(self.clone().keep((index, None), Arc::new(Notify::new())));
                }
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Changes the state of a replica. Ignored if it was removed, because its task can run until its next await.
    fn set(&self, key: Key, link: Link) {
        self.links.send_if_modified(|links| links.get_mut(&key).map(|known| *known = link).is_some());
    }

    /// Keeps one connection open, and reports each failure.
    async fn keep(self: Arc<Self>, key: Key, failed: Arc<Notify>) {
        let (address, endpoint) = &self.addresses[key.0];
        let mut pause = FIRST_PAUSE;
        loop {
            let dialler = Arc::new(Dialler::new(address.clone(), key.1, self.sockets.clone()));
            let lost = dialler.lost();
            let connector = tower::service_fn(move |_| dialler.clone().dial());
            let message = match endpoint.connect_with_connector(connector).await {
                Ok(channel) => {
                    let begin = Instant::now();
                    self.set(key, Link::Ready(channel));
                    lost.cancelled().await;
                    failed.notify_one();
                    if begin.elapsed() >= SHORTEST_CONNECTION {
                        pause = FIRST_PAUSE;
                        self.set(key, Link::Connecting);
                        continue;
                    }
                    "the connection was closed".to_owned()
                }
                Err(error) => words(&error),
            };
            let shown = address.to_string();
            let named = message.contains(&shown);
            self.set(key, Link::Failed(if named { message } else { format!("cannot connect to {shown}: {message}") }));
            failed.notify_one();
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Keeps one connection to each IP address of a host name open.
    async fn follow(self: Arc<Self>, index: usize, host: String, port: u16) {
        let failed = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        let mut kept: HashMap<SocketAddr, AbortHandle> = HashMap::new();
        loop {
            match (self.lookup)(host.clone(), port).await {
                Ok(found) if !found.is_empty() => {
                    for ip in &found {
                        if !kept.contains_key(ip) {
                            let key = (index, Some(*ip));
                            self.links.send_modify(|links| drop(links.insert(key, Link::Connecting)));
                            kept.insert(*ip, tasks.spawn(self.clone().keep(key, failed.clone())));
                        }
                    }
                    // The running calls of an IP address that the name no longer has continue.
                    for (_, task) in kept.extract_if(|ip, _| !found.contains(ip)) {
                        task.abort();
                    }
                    let is_kept = |key: &Key| key.0 != index || key.1.is_some_and(|ip| kept.contains_key(&ip));
                    self.links.send_modify(|links| links.retain(|key, _| is_kept(key)));
                    while tasks.try_join_next().is_some() {}
                }
                // A name that cannot be resolved keeps its connections.
                _ if !kept.is_empty() => {}
                unknown => {
                    let why = unknown.err().map_or("it has no IP address".to_owned(), |error| error.to_string());
                    let message = format!("cannot resolve the host of {}: {why}", self.addresses[index].0);
                    self.set((index, None), Link::Failed(message));
                    sleep(LONGEST_PAUSE).await;
                    continue;
                }
            }
            sleep(RESOLVE_PAUSE).await;
            let _ = timeout(RESOLVE_INTERVAL - RESOLVE_PAUSE, failed.notified()).await;
        }
    }
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;
