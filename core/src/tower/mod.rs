//! For servers of Rust programs: axum, hyper, tonic. [`RequestLayer`] profiles requests. [`PprofService`] serves `/debug/pprof`: paths,
//! parameters and access are
//! those of the profiler's own listener (docs/guides/pull.md), except for the `Host` header, which the server of the program checks.
//!
//! ```ignore
//! let app = axum::Router::new().nest_service("/debug/pprof", spanprof::tower::PprofService::new());
//! ```
//!
//! A pull runs on a thread of its own, so that it occupies no worker of the runtime. It ends early when its future is dropped,
//! which servers do when the client leaves.

mod requests;

pub use requests::{ProfiledBody, ProfiledResponse, ProfiledService, RequestLayer, RouteOf};

use std::convert::Infallible;
use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tower_service::Service;

use spanprof_profiler::binding;
use spanprof_profiler::pull::{HttpRequest, HttpResponse, MAX_BODY_BYTES, PULL_PREFIX};

/// Stack size of a pull's thread, which encodes profiles.
const STACK_BYTES: usize = 512 * 1024;

/// Serves profiles under `/debug/pprof`, at any mount point. It is always ready and has no error.
#[derive(Clone, Copy, Debug)]
pub struct PprofService(());

impl PprofService {
    /// A service. The profiler may be started later: until then it responds with status 503. Profiles since the start begin with
    /// `start`, or with the next window of a profiler that runs.
    pub fn new() -> Self {
        binding::serve_pulls();
        Self(())
    }
}

impl Default for PprofService {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Service<Request<B>> for PprofService
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<PprofBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Some(body) = read(body).await else {
                return Ok(response(
                    HttpResponse::refusal(413, "the body is longer than 64 KiB, or incomplete"),
                    false,
                ));
            };
            let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
            let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
            let is_head = head.method == http::Method::HEAD;
            // A nesting router has removed the mount point from the path.
            let mount_end = path.find(PULL_PREFIX).map_or(0, |start| start + PULL_PREFIX.len());
            let (mount, rest) = path.split_at(mount_end);
            let request = HttpRequest::mounted(head.method.as_str(), mount, rest, query, headers, body);
            let pull = PendingPull::start(request);
            Ok(response(poll_fn(|task| pull.poll(task)).await, is_head))
        })
    }
}

/// The whole body; `None` if it is too long or ends early.
async fn read<B: Body>(body: B) -> Option<Vec<u8>> {
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|task| body.as_mut().poll_frame(task)).await {
        let Ok(mut data) = frame.ok()?.into_data() else { continue };
        if bytes.len() + data.remaining() > MAX_BODY_BYTES {
            return None;
        }
        bytes.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Some(bytes)
}

fn response(pulled: HttpResponse, is_head: bool) -> Response<PprofBody> {
    let length = pulled.body.len();
    let body = if is_head { Vec::new() } else { pulled.body };
    let mut response = Response::new(PprofBody { bytes: Bytes::from(body) });
    *response.status_mut() = StatusCode::from_u16(pulled.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = pulled.headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    let length = ("content-length".to_owned(), length.to_string());
    for (name, value) in headers.chain(std::iter::once(length)) {
        let header = (http::HeaderName::try_from(name), http::HeaderValue::try_from(value));
        if let (Ok(name), Ok(value)) = header {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A pull on its own thread.
struct PendingPull(Arc<PullExchange>);

#[derive(Default)]
struct PullExchange {
    has_left: AtomicBool,
    outcome: Mutex<(Option<HttpResponse>, Option<Waker>)>,
}

impl PullExchange {
    fn complete(&self, response: HttpResponse) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.0 = Some(response);
        let waker = outcome.1.take();
        drop(outcome);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Responds also if the thread panics.
struct CompleteOnDrop(Arc<PullExchange>, Option<HttpResponse>);

impl Drop for CompleteOnDrop {
    fn drop(&mut self) {
        self.0.complete(self.1.take().unwrap_or_else(|| HttpResponse { status: 500, ..HttpResponse::default() }));
    }
}

impl PendingPull {
    fn start(request: HttpRequest) -> Self {
        let state = Arc::new(PullExchange::default());
        let own = state.clone();
        let pull = move || {
            let mut completion = CompleteOnDrop(own, None);
            let has_left = || completion.0.has_left.load(Ordering::Relaxed);
            completion.1 = Some(binding::pull(&request, &has_left));
        };
        if let Err(error) = spanprof_os::start_own_thread(c"spanprof-pull", STACK_BYTES, pull) {
            state.complete(HttpResponse::refusal(503, &format!("no thread for the pull: {error}")));
        }
        Self(state)
    }

    fn poll(&self, task: &mut Context<'_>) -> Poll<HttpResponse> {
        let mut outcome = self.0.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.0.take() {
            Some(response) => Poll::Ready(response),
            None => {
                outcome.1 = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for PendingPull {
    fn drop(&mut self) {
        self.0.has_left.store(true, Ordering::Relaxed);
    }
}

/// The body of a response.
#[derive(Clone, Debug, Default)]
pub struct PprofBody {
    bytes: Bytes,
}

impl Body for PprofBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_config::Config;
    use spanprof_os::testing::one_at_a_time;
    use std::time::{Duration, Instant};

    fn request(method: &str, uri: &str, body: Vec<u8>) -> Request<PprofBody> {
        let body = PprofBody { bytes: Bytes::from(body) };
        Request::builder().method(method).uri(uri).body(body).unwrap()
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// Status, content type and body.
    fn exchange(request: Request<PprofBody>) -> (u16, String, Vec<u8>) {
        let (head, body) = block_on(PprofService::new().call(request)).unwrap().into_parts();
        let header = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let body = block_on(read(body)).unwrap_or_default();
        if !body.is_empty() {
            assert_eq!(header("content-length"), body.len().to_string());
        }
        (head.status.as_u16(), header("content-type"), body)
    }

    fn get(uri: &str) -> (u16, String, Vec<u8>) {
        exchange(request("GET", uri, Vec::new()))
    }

    fn config() -> Config {
        Config { destinations: Some(Vec::new()), heap: false, ..Config::default() }
    }

    #[test]
    fn profiles_are_served_at_any_mount_point() {
        let _serial = one_at_a_time();
        assert_eq!(get("/debug/pprof/").0, 503);
        let profiler = crate::api::profiler::start_native(config()).unwrap();
        let (status, content_type, page) = get("/debug/pprof/");
        assert_eq!((status, &*content_type), (200, "text/html; charset=utf-8"));
        assert!(String::from_utf8(page).unwrap().contains("href=\"profile\""));
        for uri in
            ["/debug/pprof/profile?seconds=0.05", "/profile?seconds=0.05", "/api/debug/pprof/profile?seconds=0.05"]
        {
            let (status, content_type, profile) = get(uri);
            assert_eq!((status, &*content_type), (200, "application/octet-stream"), "{uri}");
            assert!(profile.starts_with(&[0x1f, 0x8b]), "{uri}");
        }
        assert_eq!(exchange(request("HEAD", "/profile", Vec::new())).2, b"");
        assert_eq!(get("/debug/pprof/none").0, 404);
        assert_eq!(get("/profile?seconds=61").0, 400);
        assert_eq!(exchange(request("POST", "/profile", Vec::new())).0, 405);
        assert_eq!(exchange(request("POST", "/profile", vec![0; MAX_BODY_BYTES + 1])).0, 413);
        assert_eq!(profiler.stats().counter("pull.answered"), 5);
        profiler.stop();
    }

    #[test]
    fn waits_for_locks_since_the_start_need_no_key_pull() {
        let _serial = one_at_a_time();
        let _service = PprofService::default();
        let profiler = crate::api::profiler::start_native(Config { lock: true, ..config() }).unwrap();
        let mutex = crate::sync::Mutex::new(());
        std::thread::scope(|scope| {
            let held = mutex.lock();
            scope.spawn(|| drop(mutex.lock()));
            std::thread::sleep(Duration::from_millis(50));
            drop(held);
        });
        let (status, _, body) = get("/debug/pprof/mutex?debug=1");
        let text = String::from_utf8_lossy(&body);
        assert!(status == 200 && text.contains("waits_for_locks_since_the_start"), "{text}");
        profiler.stop();
    }

    #[test]
    fn a_token_is_required_where_one_is_configured() {
        let _serial = one_at_a_time();
        let config = Config { pull_token: Some(spanprof_export::Secret::from("open")), ..config() };
        let profiler = crate::api::profiler::start_native(config).unwrap();
        assert_eq!(get("/cmdline").0, 401);
        let mut authorized = request("GET", "/cmdline", Vec::new());
        authorized.headers_mut().insert("Authorization", http::HeaderValue::from_static("Bearer open"));
        assert_eq!(exchange(authorized).0, 200);
        profiler.stop();
    }

    #[test]
    fn a_dropped_response_ends_its_collection() {
        let _serial = one_at_a_time();
        let profiler = crate::api::profiler::start_native(config()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let start = || runtime.spawn(PprofService::new().call(request("GET", "/profile?seconds=60", Vec::new())));
        let mut long = start();
        let deadline = Instant::now() + Duration::from_secs(30);
        let short = || get("/profile?seconds=0.001").0;
        while short() != 429 {
            assert!(Instant::now() < deadline, "the long collection does not begin");
            std::thread::sleep(Duration::from_millis(5));
            // It was refused if a short collection began first.
            if long.is_finished() {
                long = start();
            }
        }
        long.abort();
        while short() != 200 {
            assert!(Instant::now() < deadline, "the long collection goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        profiler.stop();
    }
}
