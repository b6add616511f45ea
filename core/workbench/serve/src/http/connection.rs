//! Accepts and serves connections: HTTP/1.1 and HTTP/2 without TLS on either port, distinguished by their first bytes.
//! Routes are in `route`. Invariant: at most `MAX_CONNECTIONS` at once; silent, stalled and idle connections are closed.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::{watch, OwnedSemaphorePermit};
use tokio::time::{sleep, timeout, Instant};

use super::route;
use crate::reply::Reply;
use crate::state::server_state::ServerState;
use crate::state::slots::{ConnectionSlots, IDLE_CHECK_INTERVAL};

/// Backlog of each port. A further peer retries its SYN after 1 s, 3 s, 7 s…
pub(crate) const LISTEN_QUEUE: i32 = 1024;

/// Deadline for the first bytes of a connection and for the head of each request.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Time without a request after which a connection is closed. Exporters send every few seconds.
const IDLE_DEADLINE: Duration = Duration::from_secs(120);
/// `HEAD_DEADLINE` while every connection is in use and others may wait. Idle peers lose their slot soon, so that many
/// of them delay others by seconds (500 peers by about 4 s).
const HEAD_DEADLINE_WHEN_FULL: Duration = Duration::from_millis(500);
const IDLE_DEADLINE_WHEN_FULL: Duration = Duration::from_secs(2);
/// Deadline for the request in progress on a closing connection.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// Last activity of a connection, for the idle check.
#[derive(Debug)]
struct Activity {
    started: Instant,
    requests: AtomicU64,
    in_flight: AtomicUsize,
    /// Milliseconds from `started` to the end of the last request.
    last_millis: AtomicU64,
}

impl Activity {
    fn idle_for(&self) -> Option<Duration> {
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return None;
        }
        Some(self.started.elapsed().saturating_sub(Duration::from_millis(self.last_millis.load(Ordering::Relaxed))))
    }
}

/// Counts one request of a connection until it is dropped.
struct RequestGuard(Arc<Activity>);

impl RequestGuard {
    fn enter(activity: &Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        activity.in_flight.fetch_add(1, Ordering::Relaxed);
        RequestGuard(activity.clone())
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.last_millis.store(self.0.started.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts on one port until `stop` turns true. Open connections observe `stop` themselves.
pub(crate) async fn accept(listener: TcpListener, state: Arc<ServerState>, mut stop: watch::Receiver<bool>) {
    loop {
        let accepted = async {
            let slot = state.connection_slots.acquire().await?;
            Some((listener.accept().await, slot))
        };
        let accepted = select! {
            accepted = accepted => accepted,
            _ = stop.wait_for(|stop| *stop) => None,
        };
        let Some((accepted, slot)) = accepted else { return };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(stream, state.clone(), slot, stop.clone()));
            }
            // Out of descriptors: the peer stays in the backlog until others close.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Serves a connection until it ends, idles too long, or the server stops.
async fn serve(
    stream: TcpStream,
    state: Arc<ServerState>,
    slot: OwnedSemaphorePermit,
    mut stop: watch::Receiver<bool>,
) {
    let activity = Arc::new(Activity {
        started: Instant::now(),
        requests: AtomicU64::new(0),
        in_flight: AtomicUsize::new(0),
        last_millis: AtomicU64::new(0),
    });
    let (service_activity, watched) = (activity.clone(), state.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let in_flight = RequestGuard::enter(&service_activity);
        let state = state.clone();
        async move {
            let reply: Reply = route::respond(&state, request).await;
            drop(in_flight);
            Ok::<_, std::convert::Infallible>(reply)
        }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_DEADLINE).max_buf_size(64 << 10);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(10))
        .max_concurrent_streams(16)
        .max_header_list_size(64 << 10)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(2 << 20);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    let must_finish = select! {
        biased;
        _ = connection.as_mut() => false,
        () = idled(&activity, &watched.connection_slots) => activity.requests.load(Ordering::Relaxed) > 0,
        _ = stop.wait_for(|stop| *stop) => true,
    };
    if must_finish {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(CLOSE_DEADLINE, connection).await;
    }
    drop(slot);
}

/// Resolves when the connection has been without a request for too long.
async fn idled(activity: &Activity, slots: &ConnectionSlots) {
    loop {
        sleep(IDLE_CHECK_INTERVAL).await;
        let Some(idle) = activity.idle_for() else { continue };
        let allowed = match (activity.requests.load(Ordering::Relaxed) == 0, slots.are_full()) {
            (true, true) => HEAD_DEADLINE_WHEN_FULL,
            (true, false) => HEAD_DEADLINE,
            (false, true) => IDLE_DEADLINE_WHEN_FULL,
            (false, false) => IDLE_DEADLINE,
        };
        if idle > allowed {
            return;
        }
    }
}
