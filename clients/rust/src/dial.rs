//! The connections: opened by the first call, reopened after they were lost, and closed by `close`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::body::Body;
use tonic::codegen::http::{self, Response};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::Service;
use tower::util::MapResponse;

use crate::address::Address;
use crate::discovery::Target;
use crate::error::ConnectError;
use crate::readable::readable;
use crate::replicas::Replicas;

/// Maximum time of one connection attempt; the deadline of the call that waits for it is often shorter.
const CONNECT: Duration = Duration::from_secs(5);

/// Maximum time in which the daemon has to answer a keepalive ping.
const PONG: Duration = Duration::from_secs(10);

/// Maximum time that closing waits for the connection's task to end.
const CLOSING: Duration = Duration::from_secs(1);

/// The service that the generated stubs call: adds the token to each call, and removes details that cannot be decoded
/// from each response.
pub type Transport = InterceptedService<MapResponse<Route, fn(Response<Body>) -> Response<Body>>, Bearer>;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where calls go: to the only address, or to the next of several replicas.
#[derive(Clone)]
pub enum Route {
    Single(Channel),
    Replicas(Replicas),
}

impl Service<http::Request<Body>> for Route {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Single(channel) => channel.poll_ready(context).map_err(Into::into),
            Self::Replicas(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match self {
            Self::Single(channel) => {
                let answer = channel.call(request);
                Box::pin(async move { Ok(answer.await?) })
            }
            Self::Replicas(replicas) => Box::pin(replicas.clone().call(request)),
        }
    }
}

/// Adds the token to a call.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// The connections of a client and its clones.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    sockets: Sockets,
}

/// The sockets of a client.
#[derive(Clone)]
pub(crate) struct Sockets {
    /// Cancelled when the client is closed.
    pub(crate) closed: CancellationToken,
    /// The number of open sockets.
    pub(crate) open: watch::Sender<usize>,
}

impl Connection {
    /// Prepares the connections; the first call opens them.
    pub(crate) fn prepare(target: &Target, keepalive: Option<Duration>) -> Result<Self, ConnectError> {
        let bearer = Bearer(target.token.as_deref().map(authorization).transpose()?);
        let sockets = Sockets { closed: CancellationToken::new(), open: watch::Sender::new(0) };
        let route = if let Some(address) = target.addresses.single() {
            let dialler = Arc::new(Dialler::new(address.clone(), None, sockets.clone()));
            let connector = tower::service_fn(move |_| dialler.clone().dial());
            Route::Single(endpoint(address, target, keepalive)?.connect_with_connector_lazy(connector))
        } else {
            let each = |address: &Address| Ok((address.clone(), endpoint(address, target, keepalive)?));
            let addresses = target.addresses.list().iter().map(each).collect::<Result<_, ConnectError>>()?;
            Route::Replicas(Replicas::prepare(addresses, sockets.clone()))
        };
        let answering = MapResponse::new(route, readable as fn(Response<Body>) -> Response<Body>);
        Ok(Self { transport: InterceptedService::new(answering, bearer), sockets })
    }

    /// Cancelled when the client is closed.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.sockets.closed
    }

    /// Ends all calls, and returns when the file descriptors are closed.
    pub(crate) async fn close(&self) {
        self.sockets.closed.cancel();
        let mut open = self.sockets.open.subscribe();
        // If the runtime is blocked, the task never runs again; do not wait for it forever.
        let _ = tokio::time::timeout(CLOSING, open.wait_for(|open| *open == 0)).await;
    }
}

fn authorization(token: &str) -> Result<MetadataValue<Ascii>, ConnectError> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}")
        .parse()
        .map_err(|_| ConnectError::new("the token contains characters that are not printable ASCII"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn endpoint(address: &Address, target: &Target, keepalive: Option<Duration>) -> Result<Endpoint, ConnectError> {
    let scheme = if target.tls.is_some() { "https" } else { "http" };
    let authority = match address {
        Address::Socket(_) => "localhost".to_owned(),
        tcp @ Address::Tcp { .. } => tcp.to_string(),
    };
    let unusable = |error| ConnectError::caused(&format!("cannot connect to {address}"), &error);
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{authority}"))
        .and_then(|endpoint| endpoint.user_agent(concat!("memoryd-client-rust/", env!("CARGO_PKG_VERSION"))))
        .map_err(unusable)?
        .connect_timeout(CONNECT);
    if let Some(tls) = &target.tls {
        endpoint = tls.of(endpoint)?;
    }
    if let Some(interval) = keepalive {
        endpoint = endpoint.http2_keep_alive_interval(interval).keep_alive_timeout(PONG).keep_alive_while_idle(true);
    }
    Ok(endpoint)
}

/// Opens the connections of one channel.
pub(crate) struct Dialler {
    address: Address,
    /// One of the IP addresses of the host, or all of them.
    ip: Option<SocketAddr>,
    sockets: Sockets,
    /// Cancelled when the first connection is closed, or when the channel stops using it.
    lost: CancellationToken,
    dialled: AtomicBool,
}

impl Dialler {
    pub(crate) fn new(address: Address, ip: Option<SocketAddr>, sockets: Sockets) -> Self {
        Self { address, ip, sockets, lost: CancellationToken::new(), dialled: AtomicBool::new(false) }
    }

    pub(crate) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    pub(crate) async fn dial(self: Arc<Self>) -> io::Result<TokioIo<Socket>> {
        // tonic dials again if the daemon has announced that it will close the connection.
        if self.dialled.swap(true, Ordering::Relaxed) {
            self.lost.cancel();
        }
        let connected = self.sockets.closed.run_until_cancelled(self.connect()).await.unwrap_or_else(|| Err(closed()));
        let stream = connected
            .map_err(|error| io::Error::new(error.kind(), format!("cannot connect to {}: {error}", self.shown())))?;
        self.sockets.open.send_modify(|open| *open += 1);
        let closed = Box::pin(self.sockets.closed.clone().cancelled_owned());
        Ok(TokioIo::new(Socket {
            stream,
            closed,
            _lost: self.lost.clone().drop_guard(),
            _counted: Counted(self.sockets.open.clone()),
        }))
    }

    fn shown(&self) -> String {
        self.ip.map_or_else(|| self.address.to_string(), |ip| format!("{} at {}", self.address, ip.ip()))
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match &self.address {
            Address::Socket(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Address::Tcp { host, port } => {
                let stream = match self.ip {
                    Some(ip) => TcpStream::connect(ip).await?,
                    None => TcpStream::connect((host.as_str(), *port)).await?,
                };
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the client is closed")
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Counts a socket while it is open.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// A socket that fails when its client is closed, even if a call still uses it.
pub(crate) struct Socket {
    stream: Box<dyn Stream>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    _lost: DropGuard,
    // Dropped after the stream, so that the socket is counted until its descriptor is closed.
    _counted: Counted,
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(closed()));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
