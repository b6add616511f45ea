//! Accepts connections and drives them: HTTP/1.1 and HTTP/2 without TLS on either port, told apart by their first bytes.
//! Not the routes (`route`). Law: at most [`MAX_CONNECTIONS`] at once; one that says nothing, stalls or idles is closed.

use std::future::Future;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout, Instant};

use super::reply::Reply;
use super::route::{self, Shared};

/// Connections served at once, both ports together; further ones wait in the listen queue.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Connections that wait on each port. One more finds no place and asks again after 1 s, 3 s, 7 s…
pub(crate) const LISTEN_QUEUE: i32 = 1024;

/// Time a peer has to say what it wants, on a new connection and for the head of each request.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Time without a request after which a connection is closed. Exporters send every few seconds.
const IDLE_DEADLINE: Duration = Duration::from_secs(120);
/// The same while every connection is taken and others may wait: a peer that only holds its place gives it up soon, so that
/// a crowd of them delays others by seconds (500 of them by about 4).
const HEAD_DEADLINE_WHEN_FULL: Duration = Duration::from_millis(500);
const IDLE_DEADLINE_WHEN_FULL: Duration = Duration::from_secs(2);
/// Time a closing connection has to finish the request it is in.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// How often a connection looks whether it idles.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// How long a server that was full counts as full: when one connection gives up its place, the others must not think
/// that there is room.
const FULL_LASTS: Duration = Duration::from_secs(1);

/// The places of connections, both ports together.
pub(crate) struct Places {
    places: Arc<Semaphore>,
    started: Instant,
    /// Milliseconds from `started` to when a place was last waited for, and one more; 0 when never.
    last_full_millis: AtomicU64,
}

impl Places {
    pub(crate) fn new() -> Self {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Places { places, started: Instant::now(), last_full_millis: AtomicU64::new(0) }
    }

    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        let place = self.places.clone().acquire_owned().await.ok();
        self.last_full_millis.store(self.started.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        place
    }

    /// Whether every place is taken, or was a moment ago.
    fn are_full(&self) -> bool {
        let full_at = Duration::from_millis(self.last_full_millis.load(Ordering::Relaxed));
        self.places.available_permits() == 0 || (!full_at.is_zero() && self.started.elapsed() < full_at + FULL_LASTS)
    }

    /// Resolves when no connection is left.
    pub(crate) async fn all_free(&self) {
        let _ = self.places.acquire_many(MAX_CONNECTIONS as u32).await;
    }

    /// Resolves `at_most` after `since`, or as soon as `when_full` has passed and the server is full.
    pub(crate) async fn crowded_out(&self, since: Instant, when_full: Duration, at_most: Duration) {
        loop {
            let passed = since.elapsed();
            if passed >= at_most || (passed >= when_full && self.are_full()) {
                return;
            }
            sleep(WATCH_INTERVAL).await;
        }
    }
}

/// What a connection did last, for the idle watch.
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

/// Counts one request of a connection, however it ends.
struct InFlight(Arc<Activity>);

impl InFlight {
    fn enter(activity: &Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        activity.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(activity.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.last_millis.store(self.0.started.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts on one port until `stop` turns true. Connections end by themselves after that.
pub(crate) async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    loop {
        let accepted = async {
            let place = shared.places.take().await?;
            Some((listener.accept().await, place))
        };
        let (accepted, place) = match first(accepted, stop.wait_for(|stop| *stop)).await {
            First::Left(Some(accepted)) => accepted,
            First::Left(None) | First::Right(_) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(stream, shared.clone(), place, stop.clone()));
            }
            // Out of descriptors: the queue keeps the peer while some close.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, place: OwnedSemaphorePermit, stop: watch::Receiver<bool>) {
    let accepted = Instant::now();
    let silent = shared.places.crowded_out(accepted, HEAD_DEADLINE_WHEN_FULL, HEAD_DEADLINE);
    let First::Left(Some(is_http2)) = first(speaks_http2(&stream), silent).await else { return };
    let activity = Arc::new(Activity {
        started: accepted,
        requests: AtomicU64::new(0),
        in_flight: AtomicUsize::new(0),
        last_millis: AtomicU64::new(0),
    });
    let (of_service, of_watch) = (activity.clone(), shared.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let in_flight = InFlight::enter(&of_service);
        let shared = shared.clone();
        async move {
            let reply: Reply = route::answer(&shared, request).await;
            drop(in_flight);
            Ok::<_, std::convert::Infallible>(reply)
        }
    });
    let io = TokioIo::new(stream);
    if is_http2 {
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(Duration::from_secs(20)))
            .keep_alive_timeout(Duration::from_secs(10))
            .max_concurrent_streams(16)
            .max_header_list_size(64 << 10)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(2 << 20)
            .serve_connection(io, service);
        drive(pin!(connection), |connection| connection.graceful_shutdown(), &activity, &of_watch.places, stop).await;
    } else {
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_DEADLINE)
            .max_buf_size(64 << 10)
            .serve_connection(io, service);
        drive(pin!(connection), |connection| connection.graceful_shutdown(), &activity, &of_watch.places, stop).await;
    }
    drop(place);
}

/// Polls a connection until it ends, idles too long, or the server stops.
async fn drive<C: Future>(
    mut connection: Pin<&mut C>,
    close: impl Fn(Pin<&mut C>),
    activity: &Activity,
    places: &Places,
    mut stop: watch::Receiver<bool>,
) {
    let idled = async {
        loop {
            sleep(WATCH_INTERVAL).await;
            let Some(idle) = activity.idle_for() else { continue };
            let allowed = match (activity.requests.load(Ordering::Relaxed) == 0, places.are_full()) {
                (true, true) => HEAD_DEADLINE_WHEN_FULL,
                (true, false) => HEAD_DEADLINE,
                (false, true) => IDLE_DEADLINE_WHEN_FULL,
                (false, false) => IDLE_DEADLINE,
            };
            if idle > allowed {
                return;
            }
        }
    };
    let stopped = async {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    match first(connection.as_mut(), first(idled, stopped)).await {
        First::Left(_) => return,
        // It never asked for anything: nothing is broken off.
        First::Right(First::Left(())) if activity.requests.load(Ordering::Relaxed) == 0 => return,
        First::Right(_) => {}
    }
    close(connection.as_mut());
    let _ = timeout(CLOSE_DEADLINE, connection).await;
}

/// Whether the first bytes are HTTP/2's preface `PRI * HTTP/2.0`; no HTTP/1 method begins with `PRI`. `None` when the peer left.
async fn speaks_http2(stream: &TcpStream) -> Option<bool> {
    const PREFACE: &[u8] = b"PRI";
    let mut start = [0u8; 3];
    loop {
        let seen = stream.peek(&mut start).await.ok()?;
        if seen == 0 {
            return None;
        }
        if start[..seen] != PREFACE[..seen] {
            return Some(false);
        }
        if seen == PREFACE.len() {
            return Some(true);
        }
        // Peeking does not wait for more than is there.
        sleep(Duration::from_millis(20)).await;
    }
}

/// Which of two futures ended first.
pub(crate) enum First<L, R> {
    Left(L),
    Right(R),
}

/// Waits for the first of two futures and drops the other; the left one wins a tie.
pub(crate) async fn first<L: Future, R: Future>(left: L, right: R) -> First<L::Output, R::Output> {
    let mut left = pin!(left);
    let mut right = pin!(right);
    std::future::poll_fn(|context| {
        if let std::task::Poll::Ready(value) = left.as_mut().poll(context) {
            return std::task::Poll::Ready(First::Left(value));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}
