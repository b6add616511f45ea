//! The embedded back end: receives profiles as OTLP over gRPC and HTTP, stores them in a directory, and serves queries and a
//! page from it; never runs in a profiled program, and never reads or writes outside its directory and `--source-path`.
//!
//! One async thread for the sockets; decoding and queries on blocking threads. Called by the verbs `serve` and `view`.
//!
//! Its folders, each of which uses only those before it: `files` · `rollup` · `query` · `store` · `state`, `reply` · `api`,
//! `receive` · `http`.
#![forbid(unsafe_code)]

mod api;
mod files;
mod http;
mod query;
mod receive;
mod reply;
mod rollup;
mod state;
mod store;

use std::future::Future;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spanprof_answers::failure::Failure;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use files::file_names::{received_of_name, replaced_range_ms};
pub use state::settings::{Addresses, Settings};
pub use state::trace_url::{refuse_repeated_names, TraceUrl};
pub use store::Retention;

use files::directory::WindowDirectory;
use http::connection::{self, LISTEN_QUEUE};
use state::server_state::ServerState;
use store::Store;

/// Interval of retention when no request arrives.
const RETENTION_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which roll-ups of complete minutes are built.
const ROLLUP_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which a start waits for the index of earlier files before requests are served.
const INDEX_WAIT: Duration = Duration::from_secs(1);

/// A server that is bound to its ports and has opened its directory, before it accepts connections.
pub struct Server {
    grpc: StdListener,
    http: StdListener,
    state: Arc<ServerState>,
}

impl Server {
    /// Binds the ports and opens the directory. Fails when a port is taken or the directory is not usable.
    pub fn bind(settings: Settings) -> Result<Server, Failure> {
        let grpc = listen(settings.grpc, "--grpc")?;
        let http = listen(settings.http, "--http")?;
        let address = |listener: &StdListener| {
            listener.local_addr().map_err(|error| Failure::new(format!("cannot read a socket's address: {error}")))
        };
        let addresses = Addresses { grpc: address(&grpc)?, http: address(&http)? };
        let directory = WindowDirectory::open(&settings.directory)?;
        if directory.is_open_to_all() {
            (settings.report)(&format!(
                "warning: every user of this machine may write into {}; chmod o-w is advised",
                directory.path().display()
            ));
        }
        let store = Store::new(directory, settings.retention);
        Ok(Server { grpc, http, state: Arc::new(ServerState::new(settings, addresses, store)) })
    }

    pub fn addresses(&self) -> Addresses {
        self.state.addresses
    }

    /// The directory's full path.
    pub fn directory(&self) -> PathBuf {
        self.state.store.directory().to_owned()
    }

    /// Serves until `stop` resolves; calls `ready` once requests are accepted. Fails when the server cannot start.
    pub fn run(self, ready: impl FnOnce(), stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot start the server: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(6)
            .build()
            .map_err(failed)?;
        let outcome = runtime.block_on(self.serve(ready, stop)).map_err(failed);
        // A query may still be merging; its connection is closed.
        runtime.shutdown_timeout(Duration::from_millis(500));
        outcome
    }

    async fn serve(self, ready: impl FnOnce(), stop: impl Future<Output = ()>) -> std::io::Result<()> {
        let Server { grpc, http, state } = self;
        let (stop_sender, stopping) = watch::channel(false);
        for listener in [grpc, http] {
            let listener = TcpListener::from_std(listener)?;
            tokio::spawn(connection::accept(listener, state.clone(), stopping.clone()));
        }
        let indexing = state.clone();
        let index = tokio::task::spawn_blocking(move || {
            indexing.store.index(|line| indexing.report(&line));
        });
        let _ = tokio::time::timeout(INDEX_WAIT, index).await;
        tokio::spawn(repeat(state.clone(), RETENTION_INTERVAL, |state| state.store.retain(store::unix_ms())));
        tokio::spawn(repeat(state.clone(), ROLLUP_INTERVAL, |state| state.store.build_rollups(store::unix_ms())));
        let completed = state.clone();
        tokio::spawn(async move {
            loop {
                completed.store.has_unfinished_query().await;
                let state = completed.clone();
                let _ = tokio::task::spawn_blocking(move || state.store.complete_queries()).await;
            }
        });
        // Polled once, so that the signal handlers exist before `ready`.
        let mut stop = std::pin::pin!(stop);
        tokio::select! {
            biased;
            () = stop.as_mut() => return Ok(()),
            () = std::future::ready(()) => {}
        }
        ready();
        stop.await;
        state.store.stop();
        let _ = stop_sender.send(true);
        // Requests in progress finish or are aborted with their connections; slightly longer than [`connection`]'s close deadline.
        let _ = tokio::time::timeout(Duration::from_millis(2500), state.connection_slots.all_free()).await;
        Ok(())
    }
}

/// Does `work` on a blocking thread, at once and each time an interval after the last one ended.
async fn repeat(state: Arc<ServerState>, interval: Duration, work: fn(&ServerState)) {
    loop {
        let state = state.clone();
        let _ = tokio::task::spawn_blocking(move || work(&state)).await;
        tokio::time::sleep(interval).await;
    }
}

fn listen(address: SocketAddr, flag: &str) -> Result<StdListener, Failure> {
    let listener = StdListener::bind(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::new(format!("{address} is in use by another program")).hint(format!(
            "stop it (`ss -ltnp` shows it), or pick another port: {flag} PORT; {flag} 0 selects a free one"
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
