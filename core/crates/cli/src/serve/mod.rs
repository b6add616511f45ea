//! The embedded back end: receives OTLP profiles over gRPC and HTTP, keeps them in a directory, and answers queries and a
//! page from it. One async thread for the sockets; decoding and queries on blocking threads. Called by the verb `serve`.

mod api;
mod connection;
mod directory;
mod intake;
mod otlp_grpc;
mod otlp_http;
mod page;
mod received;
mod reply;
mod route;
mod slices;
mod spans;
mod store;
mod window;

use std::future::Future;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spanprof_profile::decode::DecodeLimits;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) use api::LEFT_OUT_HEADER;
pub(crate) use connection::first;
pub(crate) use directory::looks_like_a_profile;
pub use store::Retention;
pub(crate) use store::{gzip, unix_ns};

use crate::failure::Failure;
use connection::{First, LISTEN_QUEUE};
use directory::Directory;
use route::Shared;
use store::Store;

/// How often old windows are looked for when nothing arrives.
const RETENTION_INTERVAL: Duration = Duration::from_secs(30);
/// How long a start waits for the files of earlier runs before it answers without them.
const INDEX_PATIENCE: Duration = Duration::from_secs(1);

/// What a server is asked to be.
#[derive(Clone)]
pub struct Settings {
    /// Address for OTLP/gRPC; port 0 picks a free one.
    pub grpc: SocketAddr,
    /// Likewise; OTLP/HTTP, the page and its questions.
    pub http: SocketAddr,
    /// Where requests are kept; made when it is not there.
    pub directory: PathBuf,
    /// How much is kept.
    pub retention: Retention,
    /// Largest request as it travels, compressed or not.
    pub max_request_bytes: usize,
    /// What a decoded request may be.
    pub limits: DecodeLimits,
    /// Names under which browsers may reach the page, besides localhost and addresses.
    pub allowed_hosts: Vec<String>,
    /// Where lines for whoever runs the server go.
    pub report: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// OTLP/gRPC.
    pub grpc: SocketAddr,
    /// OTLP/HTTP and the page.
    pub http: SocketAddr,
}

/// A server that has its ports and its directory, and has not answered anyone yet.
pub struct Server {
    grpc: StdListener,
    http: StdListener,
    shared: Arc<Shared>,
}

impl Server {
    /// Takes the ports and opens the directory.
    pub fn bind(settings: Settings) -> Result<Server, Failure> {
        let grpc = listen(settings.grpc, "--grpc")?;
        let http = listen(settings.http, "--http")?;
        let address = |listener: &StdListener| {
            listener.local_addr().map_err(|error| Failure::new(format!("cannot read a socket's address: {error}")))
        };
        let addresses = Addresses { grpc: address(&grpc)?, http: address(&http)? };
        let directory = Directory::open(&settings.directory)?;
        if directory.is_open_to_all() {
            (settings.report)(&format!(
                "warning: every user of this machine may write into {}; chmod o-w is advised",
                directory.path().display()
            ));
        }
        let store = Store::new(directory, settings.retention);
        Ok(Server { grpc, http, shared: Arc::new(Shared::new(settings, addresses, store)) })
    }

    pub fn addresses(&self) -> Addresses {
        self.shared.addresses
    }

    /// The directory's full path.
    pub fn directory(&self) -> PathBuf {
        self.shared.store.directory().to_owned()
    }

    /// Serves until `stop` is done; `ready` is called when requests are answered.
    pub fn run(self, ready: impl FnOnce(), stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot start the server: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(6)
            .build()
            .map_err(failed)?;
        let outcome = runtime.block_on(self.serve(ready, stop)).map_err(failed);
        // A query may still be merging; nobody waits for its answer any more.
        runtime.shutdown_timeout(Duration::from_millis(500));
        outcome
    }

    async fn serve(self, ready: impl FnOnce(), stop: impl Future<Output = ()>) -> std::io::Result<()> {
        let Server { grpc, http, shared } = self;
        let (stop_sender, stopping) = watch::channel(false);
        for listener in [grpc, http] {
            let listener = TcpListener::from_std(listener)?;
            tokio::spawn(connection::accept(listener, shared.clone(), stopping.clone()));
        }
        let of_index = shared.clone();
        let index = tokio::task::spawn_blocking(move || {
            of_index.store.index(&of_index.settings.limits, |line| of_index.report(&line));
        });
        let _ = tokio::time::timeout(INDEX_PATIENCE, index).await;
        let of_retention = shared.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RETENTION_INTERVAL).await;
                let shared = of_retention.clone();
                let _ = tokio::task::spawn_blocking(move || shared.store.retain(store::unix_ms())).await;
            }
        });
        // Polled once, so that a signal right after `ready` is caught already.
        let mut stop = std::pin::pin!(stop);
        let First::Right(()) = connection::first(stop.as_mut(), std::future::ready(())).await else { return Ok(()) };
        ready();
        stop.await;
        shared.store.stop();
        let _ = stop_sender.send(true);
        // Requests under way end or are cut off with their connections; a little longer than a connection takes to close.
        let _ = tokio::time::timeout(Duration::from_millis(2500), shared.places.all_free()).await;
        Ok(())
    }
}

fn listen(address: SocketAddr, flag: &str) -> Result<StdListener, Failure> {
    let listener = StdListener::bind(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::new(format!("{address} is taken by another program")).hint(format!(
            "stop it (`ss -ltnp` shows it), or pick another port: {flag} PORT; {flag} 0 takes a free one"
        )),
        std::io::ErrorKind::PermissionDenied => Failure::new(format!("no permission to listen on {address}"))
            .hint(format!("pick a port above 1023: {flag} PORT")),
        _ => Failure::new(format!("cannot listen on {address}: {error}"))
            .hint("is the address of --listen one of this machine's?"),
    })?;
    let prepared = socket2::SockRef::from(&listener).listen(LISTEN_QUEUE).and_then(|()| listener.set_nonblocking(true));
    prepared.map_err(|error| Failure::new(format!("cannot listen on {address}: {error}")))?;
    Ok(listener)
}
