use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use h2::server::{Connection, SendResponse};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::codegen::Bytes;
use tonic::codegen::http::{HeaderMap, HeaderValue};

use super::*;
use crate::Error;
use crate::client::Client;
use crate::environment::Environment;
use crate::options::Options;
use crate::v1::memory_service_client::MemoryServiceClient;
use crate::v1::{MemoryGetRequest, SyncRequest, WatchIndexRequest};

const FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A server that counts its calls, and responds to each with one empty message. A `WatchIndex` never ends.
struct Replica {
    at: SocketAddr,
    behaviour: Arc<Behaviour>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Behaviour {
    calls: AtomicUsize,
    connections: AtomicUsize,
    refuses_calls: AtomicBool,
    closes_connections: AtomicBool,
    going_away: Notify,
}

impl Replica {
    async fn start(at: impl Into<IpAddr>, port: u16) -> Self {
        Self::behaving(SocketAddr::new(at.into(), port), Arc::default()).await
    }

    async fn behaving(at: SocketAddr, behaviour: Arc<Behaviour>) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, behaviour.clone()));
        Self { at, behaviour, tasks }
    }

    fn calls(&self) -> usize {
        self.behaviour.calls.load(Ordering::SeqCst)
    }

    /// Closes the listener and all connections.
    async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }
}

async fn accept(listener: TcpListener, behaviour: Arc<Behaviour>) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        behaviour.connections.fetch_add(1, Ordering::SeqCst);
        if !behaviour.closes_connections.load(Ordering::SeqCst) {
            connections.spawn(serve(socket, behaviour.clone()));
        }
    }
}

async fn serve(socket: TcpStream, behaviour: Arc<Behaviour>) {
    let Ok(mut connection): Result<Connection<TcpStream, Bytes>, _> = h2::server::handshake(socket).await else {
        return;
    };
    let mut watched = Vec::new();
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = behaviour.going_away.notified() => {
                connection.graceful_shutdown();
                continue;
            }
        };
        let Some(Ok((request, answer))) = accepted else {
            return;
        };
        behaviour.calls.fetch_add(1, Ordering::SeqCst);
        let watch = request.uri().path().ends_with("/WatchIndex");
        watched.extend(respond(answer, behaviour.refuses_calls.load(Ordering::SeqCst), watch));
    }
}

fn respond(mut answer: SendResponse<Bytes>, refuses: bool, watch: bool) -> Option<h2::SendStream<Bytes>> {
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut body = answer.send_response(head, false).unwrap();
    if !refuses {
        body.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
    }
    if watch {
        return Some(body);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(if refuses { Code::Unavailable as i32 } else { 0 }));
    body.send_trailers(trailers).unwrap();
    None
}

fn client(replicas: &[&Replica]) -> Client {
    let list: Vec<String> = replicas.iter().map(|replica| replica.at.to_string()).collect();
    let options = Options::new().address(list.join(" , ")).timeout(Duration::from_secs(20));
    Client::prepare(&options, &Environment::of(&[], Path::new("/nowhere"))).unwrap()
}

async fn get(client: &Client) -> Result<(), Error> {
    client.get(MemoryGetRequest::default()).await.map(drop)
}

/// Repeats a call, which must succeed, until the condition holds.
async fn call_until(client: &Client, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            get(client).await.unwrap();
        }
    };
    timeout(Duration::from_secs(20), waiting).await.unwrap();
}

async fn two() -> (Replica, Replica, Client) {
    let (one, other) = (Replica::start(FIRST, 0).await, Replica::start(FIRST, 0).await);
    let client = client(&[&one, &other]);
    call_until(&client, || one.calls() > 0 && other.calls() > 0).await;
    (one, other, client)
}

#[tokio::test]
async fn calls_and_streams_alternate_between_the_addresses() {
    let (one, other, client) = two().await;
    let before = (one.calls(), other.calls());
    for _ in 0..20 {
        get(&client).await.unwrap();
    }
    assert_eq!((one.calls() - before.0, other.calls() - before.1), (10, 10));
    for _ in 0..4 {
        let mut events = client.sync(SyncRequest::default()).await.unwrap();
        while events.message().await.unwrap().is_some() {}
    }
    assert_eq!((one.calls() - before.0, other.calls() - before.1), (12, 12));
}

#[tokio::test]
async fn a_replica_that_stops_is_skipped_and_gets_calls_again_when_it_is_back() {
    let (mut one, _other, client) = two().await;
    for _ in 0..2 {
        one.stop().await;
        for _ in 0..20 {
            get(&client).await.unwrap();
        }
        one = Replica::behaving(one.at, Arc::default()).await;
        let back = Instant::now();
        call_until(&client, || one.calls() > 0).await;
        assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
    }
}

#[tokio::test]
async fn a_call_that_a_replica_refuses_is_retried_at_another() {
    let (one, _other, client) = two().await;
    one.behaviour.refuses_calls.store(true, Ordering::SeqCst);
    let before = one.calls();
    call_until(&client, || one.calls() > before + 2).await;
}

#[tokio::test]
async fn if_no_replica_answers_the_error_names_all_addresses() {
    let (mut one, mut other, client) = two().await;
    one.stop().await;
    other.stop().await;
    let begin = Instant::now();
    let error = get(&client).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    for replica in [&one, &other] {
        assert!(error.message().contains(&format!("cannot connect to {}: ", replica.at)), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_replica_that_announces_its_end_gets_no_more_calls_and_ends_its_streams() {
    let (mut one, other, client) = two().await;
    let mut first = client.watch(WatchIndexRequest::default()).await.unwrap();
    let mut second = client.watch(WatchIndexRequest::default()).await.unwrap();
    assert!(first.message().await.unwrap().is_some() && second.message().await.unwrap().is_some());
    // The new connection, to which the client changes, is not accepted.
    one.behaviour.closes_connections.store(true, Ordering::SeqCst);
    one.behaviour.going_away.notify_one();
    let before = other.calls();
    call_until(&client, || other.calls() > before + 20).await;
    let connected = one.calls();
    for _ in 0..20 {
        get(&client).await.unwrap();
    }
    assert_eq!(one.calls(), connected);
    one.stop().await;
    // One stream is at each replica.
    let (end, mut other_stream) = tokio::select! {
        end = first.message() => (end, second),
        end = second.message() => (end, first),
    };
    assert_eq!(end.unwrap_err().code(), Code::Unavailable);
    assert!(timeout(Duration::from_millis(100), other_stream.message()).await.is_err());
}

#[tokio::test]
async fn a_replica_that_closes_each_connection_is_dialled_four_times_a_second() {
    let one = Replica::start(FIRST, 0).await;
    let other = Replica::start(FIRST, 0).await;
    one.behaviour.closes_connections.store(true, Ordering::SeqCst);
    let client = client(&[&one, &other]);
    call_until(&client, || other.calls() > 0).await;
    sleep(Duration::from_secs(2)).await;
    let dialled = one.behaviour.connections.load(Ordering::SeqCst);
    assert!((4..=12).contains(&dialled), "{dialled}");
}

#[tokio::test]
async fn closing_ends_all_connections() {
    let (_one, _other, client) = two().await;
    client.close().await;
    assert_eq!(get(&client).await.unwrap_err().code(), Code::Cancelled);
    let error = Error::from(client.memory_stub().memory_get(MemoryGetRequest::default()).await.unwrap_err());
    assert_eq!((error.code(), error.message()), (Code::Unavailable, "the client is closed"));
}

/// Replicas behind a host name, with the IP addresses that it has.
fn named(port: u16, ips: &Arc<Mutex<Vec<Ipv4Addr>>>) -> (Replicas, Sockets) {
    let address = Address::Tcp { host: "replicas".to_owned(), port };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let ips = ips.clone();
    let lookup = move |_, port| -> Pin<Box<dyn Future<Output = _> + Send>> {
        let found: Vec<SocketAddr> = ips.lock().unwrap().iter().map(|ip| SocketAddr::new((*ip).into(), port)).collect();
        Box::pin(async move { if found.is_empty() { Err(io::Error::other("no such host")) } else { Ok(found) } })
    };
    let sockets = Sockets { closed: CancellationToken::new(), open: watch::Sender::new(0) };
    (Replicas::prepare_with(vec![(address, endpoint)], sockets.clone(), Arc::new(lookup)), sockets)
}

async fn call(replicas: &Replicas) -> Result<(), Error> {
    let replicas = replicas.clone();
    let service = tower::service_fn(move |request| replicas.clone().call(request));
    MemoryServiceClient::new(service).memory_get(MemoryGetRequest::default()).await?;
    Ok(())
}

#[tokio::test]
async fn calls_alternate_between_the_ip_addresses_of_a_host_name_which_is_resolved_again() {
    let mut one = Replica::start(FIRST, 0).await;
    let port = one.at.port();
    let other = Replica::start(SECOND, port).await;
    let ips = Arc::new(Mutex::new(Vec::new()));
    let (replicas, _sockets) = named(port, &ips);
    let error = call(&replicas).await.unwrap_err();
    let message = format!("cannot resolve the host of replicas:{port}: no such host");
    assert_eq!((error.code(), error.message()), (Code::Unavailable, message.as_str()));

    ips.lock().unwrap().push(FIRST);
    let resolved = async {
        while call(&replicas).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), resolved).await.unwrap();
    assert_eq!(other.calls(), 0);

    // The name is resolved again because a connection failed.
    ips.lock().unwrap().push(SECOND);
    one.stop().await;
    let begin = Instant::now();
    while other.calls() == 0 {
        let _ = call(&replicas).await;
        assert!(begin.elapsed() < RESOLVE_INTERVAL / 2);
        sleep(Duration::from_millis(20)).await;
    }
    one = Replica::behaving(one.at, Arc::default()).await;
    while one.calls() < 3 || other.calls() < 3 {
        call(&replicas).await.unwrap();
        assert!(begin.elapsed() < RESOLVE_INTERVAL / 2);
    }

    // An IP address that the name no longer has gets no more calls after the next resolution.
    ips.lock().unwrap().retain(|ip| *ip == FIRST);
    one.stop().await;
    let _again = Replica::behaving(one.at, Arc::default()).await;
    while replicas.0.links.borrow().len() > 1 {
        assert!(begin.elapsed() < RESOLVE_INTERVAL);
        sleep(Duration::from_millis(20)).await;
    }
    let before = other.calls();
    for _ in 0..6 {
        call(&replicas).await.unwrap();
    }
    assert_eq!(other.calls(), before);
}

#[tokio::test]
async fn dropping_the_last_clone_closes_the_connections() {
    let one = Replica::start(FIRST, 0).await;
    let (replicas, sockets) = named(one.at.port(), &Arc::new(Mutex::new(vec![FIRST])));
    let clone = replicas.clone();
    call(&replicas).await.unwrap();
    drop(replicas);
    call(&clone).await.unwrap();
    drop(clone);
    let mut open = sockets.open.subscribe();
    timeout(Duration::from_secs(20), open.wait_for(|open| *open == 0)).await.unwrap().unwrap();
}
