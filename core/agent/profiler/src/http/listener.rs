//! A small HTTP/1.1 server for pull requests. One thread accepts connections and reads requests by `poll`; a short-lived
//! thread per request calls the handler and sends the response. Each response ends its connection, so an idle server has
//! one descriptor and no wakeups. Connections, their bytes, their time and the running handlers are limited. Not here: the
//! meaning of a request (`pull`).
//!
//! Not hyper on tokio: it needs readiness of sockets without tokio's I/O driver. After a fork the hook closes the child's copy of
//! the socket, and a restarted profiler binds its own with `SO_REUSEPORT`.

use crate::http::message::{HttpRequest, HttpResponse, ParsedRequest, PartialRequest, READ_BYTES};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use spanprof_export::OwnedDescriptor;
use spanprof_export::StartThread;
use spanprof_export::{ExportError, ExportErrorKind};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Answers one request, on a thread of its own. The second argument reports whether the client has left.
pub type HttpHandler = Arc<dyn Fn(&HttpRequest, &dyn Fn() -> bool) -> HttpResponse + Send + Sync>;

/// Connections that have not sent their request yet. With more, new ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 64;
/// Running handlers; with more, requests are answered with 503.
const MAX_HANDLERS: usize = 8;
/// Time for a whole request. Shorter while all connections are in use, so that idle clients cannot keep others out.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const CROWDED_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the identity of the listening descriptor is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Delay after a failed `accept`, such as for lack of descriptors.
const ACCEPT_DELAY: Duration = Duration::from_millis(250);
/// Delay after a failed attempt to bind the address again.
const REBIND_DELAY: Duration = Duration::from_secs(1);
const BACKLOG: i32 = 128;
const STACK_BYTES_NAME: &std::ffi::CStr = c"spanprof-pull";

/// Called with number, device and inode of each listening descriptor. A forked child closes its copy: as long as it is open, the
/// system queues connections there that nobody accepts.
pub type OnBound = fn(RawFd, (u64, u64));

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed without a complete, well-formed request.
    pub incomplete: u64,
    /// Requests refused because too many were being handled.
    pub overloaded: u64,
    /// Sockets bound again because the program had closed the previous one.
    pub rebound: u64,
}

/// A running server. Ends with [`HttpListener::stop`].
pub struct HttpListener {
    state: Arc<ListenerState>,
    address: SocketAddr,
}

struct ListenerState {
    /// Replaced when the program closed it.
    socket: Mutex<Arc<OwnedDescriptor<TcpListener>>>,
    address: SocketAddr,
    on_bound: OnBound,
    handler: HttpHandler,
    start_thread: StartThread,
    is_stopping: AtomicBool,
    handlers: AtomicUsize,
    accepted: AtomicU64,
    incomplete: AtomicU64,
    overloaded: AtomicU64,
    rebound: AtomicU64,
}

struct Connection {
    stream: OwnedDescriptor<TcpStream>,
    request: PartialRequest,
    accepted_at: Instant,
}

impl HttpListener {
    /// Listens on the first address of `host` that can be bound; port 0 is any free port. Processes of one user share a port:
    /// the system distributes connections among them (SO_REUSEPORT).
    ///
    /// # Errors
    /// When the name has no address, the address cannot be bound, or the system refuses a thread.
    pub fn start(
        host: &str,
        port: u16,
        handler: HttpHandler,
        start_thread: StartThread,
        on_bound: OnBound,
    ) -> Result<Self, ExportError> {
        let failed = |error: io::Error| ExportError {
            kind: ExportErrorKind::System,
            message: format!("cannot listen on {host}:{port}: {error}"),
            hint: "choose another port, or port 0 for any free one".to_owned(),
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs().map_err(failed)? {
            match bind(address) {
                Ok(socket) => {
                    let address = socket.local_addr().map_err(failed)?;
                    let state = Arc::new(ListenerState {
                        socket: Mutex::new(registered(socket, on_bound).map_err(failed)?),
                        address,
                        on_bound,
                        handler,
                        start_thread,
                        is_stopping: AtomicBool::new(false),
                        handlers: AtomicUsize::new(0),
                        accepted: AtomicU64::new(0),
                        incomplete: AtomicU64::new(0),
                        overloaded: AtomicU64::new(0),
                        rebound: AtomicU64::new(0),
                    });
                    let own = state.clone();
                    start_thread(STACK_BYTES_NAME, Box::new(move || own.run())).map_err(failed)?;
                    return Ok(Self { state, address });
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters.
    pub fn counts(&self) -> ListenerCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ListenerCounts {
            accepted: count(&self.state.accepted),
            incomplete: count(&self.state.incomplete),
            overloaded: count(&self.state.overloaded),
            rebound: count(&self.state.rebound),
        }
    }

    /// Stops to accept and closes the port. Requests that are being handled are still answered.
    pub fn stop(&self) {
        self.state.is_stopping.store(true, Ordering::Release);
        if let Ok(socket) = self.state.socket().get() {
            // Ends the `poll` of the thread, which drops the socket.
            let _ = net::shutdown(socket, net::Shutdown::Both);
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // A connection in TIME_WAIT must not prevent a restart.
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::sockopt::set_socket_reuseport(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

fn registered(socket: TcpListener, on_bound: OnBound) -> io::Result<Arc<OwnedDescriptor<TcpListener>>> {
    let number = socket.as_raw_fd();
    let socket = OwnedDescriptor::new(socket)?;
    on_bound(number, socket.identity());
    Ok(Arc::new(socket))
}

impl ListenerState {
    fn socket(&self) -> Arc<OwnedDescriptor<TcpListener>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Binds the address again after the program closed the descriptor.
    fn rebind(&self) -> io::Result<()> {
        let socket = registered(bind(self.address)?, self.on_bound)?;
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = socket;
        self.rebound.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn run(self: Arc<Self>) {
        let mut connections: Vec<Connection> = Vec::new();
        let mut accept_after = Instant::now();
        while !self.is_stopping.load(Ordering::Acquire) {
            let own = self.socket();
            // The program may have closed the descriptor, as daemons do; its number then belongs to the program.
            let Ok(socket) = own.get() else {
                if self.rebind().is_err() {
                    std::thread::sleep(REBIND_DELAY);
                }
                continue;
            };
            let now = Instant::now();
            let is_crowded = connections.len() >= MAX_CONNECTIONS;
            let timeout = if is_crowded { CROWDED_TIMEOUT } else { REQUEST_TIMEOUT };
            connections.retain(|connection| {
                let is_kept = now.duration_since(connection.accepted_at) < timeout && connection.stream.get().is_ok();
                self.incomplete.fetch_add(u64::from(!is_kept), Ordering::Relaxed);
                is_kept
            });
            let accepts = connections.len() < MAX_CONNECTIONS && now >= accept_after;
            let mut wait = connections
                .iter()
                .map(|connection| (connection.accepted_at + timeout).saturating_duration_since(now))
                .fold(CHECK_INTERVAL, Duration::min);
            if now < accept_after {
                wait = wait.min(accept_after - now);
            }
            let ready = {
                // A descriptor that is not polled is listed without events.
                let events = if accepts { PollFlags::IN } else { PollFlags::empty() };
                let mut polled = vec![PollFd::new(socket, events)];
                polled.extend(
                    connections
                        .iter()
                        .filter_map(|connection| Some(PollFd::new(connection.stream.get().ok()?, PollFlags::IN))),
                );
                if polled.len() != connections.len() + 1 {
                    continue;
                }
                match poll(&mut polled, Some(&timespec(wait))) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => return,
                }
                polled.iter().map(|one| !one.revents().is_empty()).collect::<Vec<_>>()
            };
            for at in (0..connections.len()).rev() {
                if ready[at + 1] {
                    self.read(&mut connections, at);
                }
            }
            if ready[0] && accepts && !self.accept(&mut connections) {
                accept_after = Instant::now() + ACCEPT_DELAY;
            }
        }
    }

    /// Accepts the waiting connections, up to the limit; false after an error.
    fn accept(&self, connections: &mut Vec<Connection>) -> bool {
        while connections.len() < MAX_CONNECTIONS {
            let own = self.socket();
            let Ok(socket) = own.get() else { return true };
            let stream = match socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            self.accepted.fetch_add(1, Ordering::Relaxed);
            let is_usable = stream.set_nonblocking(true).is_ok();
            if let (true, Ok(stream)) = (is_usable, OwnedDescriptor::new(stream)) {
                connections.push(Connection {
                    stream,
                    request: PartialRequest::default(),
                    accepted_at: Instant::now(),
                });
            }
        }
        true
    }

    /// Reads what a connection has sent. A complete request is handled on a thread of its own.
    fn read(self: &Arc<Self>, connections: &mut Vec<Connection>, at: usize) {
        let connection = &mut connections[at];
        let mut buffer = [0; READ_BYTES];
        let length = match connection.stream.get().and_then(|mut stream| stream.read(&mut buffer)) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => 0,
        };
        // The end of the input ends a request that is not complete.
        let parsed = match length {
            0 => ParsedRequest::Abandoned,
            _ => connection.request.add(&buffer[..length]),
        };
        match parsed {
            ParsedRequest::Partial => {}
            ParsedRequest::Complete(mut request) => {
                let connection = connections.swap_remove(at);
                let client = connection.stream.get().and_then(|stream| stream.peer_addr());
                request.client = client.map(|address| address.to_string()).unwrap_or_default();
                self.handle(connection.stream, request);
            }
            ParsedRequest::Refused(response) => {
                self.incomplete.fetch_add(1, Ordering::Relaxed);
                send_at_once(&connections.swap_remove(at).stream, &response);
            }
            ParsedRequest::Abandoned => {
                self.incomplete.fetch_add(1, Ordering::Relaxed);
                connections.swap_remove(at);
            }
        }
    }

    fn handle(self: &Arc<Self>, stream: OwnedDescriptor<TcpStream>, request: HttpRequest) {
        let is_refused = self.handlers.fetch_add(1, Ordering::AcqRel) >= MAX_HANDLERS;
        let running = RunningHandler(self.clone());
        let stream = Arc::new(stream);
        let own = stream.clone();
        let is_started = !is_refused && {
            let body = move || {
                let response = (running.0.handler)(&request, &|| has_left(&own));
                send(&own, &response.encode(request.method == "HEAD"));
            };
            (self.start_thread)(STACK_BYTES_NAME, Box::new(body)).is_ok()
        };
        if !is_started {
            self.overloaded.fetch_add(1, Ordering::Relaxed);
            let mut response = HttpResponse::text(503, "too many requests are being handled");
            response.headers.push(("Retry-After", "1".to_owned()));
            send_at_once(&stream, &response);
        }
    }
}

/// Counts down when the handler has ended.
struct RunningHandler(Arc<ListenerState>);

impl Drop for RunningHandler {
    fn drop(&mut self) {
        self.0.handlers.fetch_sub(1, Ordering::AcqRel);
    }
}

fn timespec(duration: Duration) -> Timespec {
    // Rounded up, so that the deadline has passed after the wait.
    let duration = duration + Duration::from_millis(1);
    Timespec { tv_sec: duration.as_secs() as _, tv_nsec: duration.subsec_nanos() as _ }
}

/// Whether the client closed the connection.
fn has_left(stream: &OwnedDescriptor<TcpStream>) -> bool {
    let Ok(stream) = stream.get() else { return true };
    matches!(stream.peek(&mut [0]), Ok(0)) || stream.take_error().ok().flatten().is_some()
}

/// Sends a short response without waiting.
fn send_at_once(stream: &OwnedDescriptor<TcpStream>, response: &HttpResponse) {
    if let Ok(mut stream) = stream.get() {
        // The buffer of a new connection is larger than the response.
        let _ = stream.write(&response.encode(false));
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
}

/// Sends a response, at most for [`RESPONSE_TIMEOUT`].
fn send(stream: &OwnedDescriptor<TcpStream>, mut bytes: &[u8]) {
    let deadline = Instant::now() + RESPONSE_TIMEOUT;
    while !bytes.is_empty() {
        let Ok(mut open) = stream.get() else { return };
        match open.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                let ready = poll(&mut [PollFd::new(open, PollFlags::OUT)], Some(&timespec(left)));
                if left == Duration::ZERO || ready == Ok(0) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
    if let Ok(open) = stream.get() {
        let _ = open.shutdown(std::net::Shutdown::Write);
    }
}
