//! The layer for requests of a tower service, with a service of known CPU time: labels, links and counted requests.

use std::convert::Infallible;
use std::future::{ready, Future, Ready};
use std::pin::{pin, Pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use spanprof::tower::{ProfiledBody, RequestLayer};
use spanprof_config::Config;
use spanprof_profile::model::{Profile, ProfilesData, Sample};
use tower_layer::Layer;
use tower_service::Service;

use super::profiler::{burn, one_at_a_time, start_native, with_receiver, without_destination, Receiver200, TIMEOUT};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const CALLER_TRACE: [u8; 16] = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
const CALLER_SPAN: [u8; 8] = [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7];

/// A body of one frame, which takes CPU time.
struct ExpensiveBody(Option<Duration>);

impl Body for ExpensiveBody {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|cpu| Ok(Frame::data(bytes::Bytes::from(burn(cpu).to_string())))))
    }
}

/// `/fails` has status 500, `/never` no response, `/panics` panics; others take CPU time in the call and in their body.
#[derive(Clone)]
struct Shop;

impl Service<Request<()>> for Shop {
    type Response = Response<ExpensiveBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let path = request.uri().path().to_owned();
        Box::pin(async move {
            let cpu = Duration::from_millis(if path.starts_with("/cart") { 150 } else { 0 });
            match path.as_str() {
                "/never" => std::future::pending().await,
                "/panics" => std::panic::resume_unwind(Box::new("on purpose")),
                _ => burn(cpu),
            };
            let mut response = Response::new(ExpensiveBody(Some(cpu)));
            if path == "/fails" {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            }
            Ok(response)
        })
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn read_whole(body: ProfiledBody<ExpensiveBody>) {
    let mut body = pin!(body);
    while let Poll::Ready(Some(_)) = body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) {}
}

fn request(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(path).header("traceparent", CALLER).body(()).unwrap()
}

fn text(data: &ProfilesData, sample: &Sample, key: &str) -> String {
    let mut attributes = data.dictionary.attributes_of(sample.attributes);
    attributes.find(|attribute| attribute.key == key).map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

fn profile<'a>(data: &'a ProfilesData, name: &str) -> &'a Profile {
    data.profiles().map(|(_, profile)| profile).find(|profile| profile.type_name() == name).unwrap()
}

#[test]
fn requests_of_a_tower_service_are_labeled_linked_and_counted() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let profiler = start_native(Config { heap: false, ..with_receiver(&receiver) }).unwrap();
    let layer = RequestLayer::new(|uri, _| Some(uri.path()).filter(|path| *path != "/unknown"));
    let mut shop = layer.layer(Shop);
    let mut call = |method: &str, path: &str| {
        let mut future = Box::pin(shop.call(request(method, path)));
        match poll(future.as_mut()) {
            Poll::Ready(Ok(response)) => read_whole(response.into_body()),
            Poll::Ready(Err(never)) => match never {},
            // The client leaves.
            Poll::Pending => drop(future),
        }
    };
    call("GET", "/cart");
    call("BREW", "/fails");
    call("GET", "/never");
    call("GET", "/unknown");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call("POST", "/panics")));
    assert!(panicked.is_err());
    assert!(profiler.flush(TIMEOUT));
    let data = receiver.next(TIMEOUT).unwrap();
    profiler.stop();

    let requests = profile(&data, "requests");
    let mut counted: Vec<_> = requests.samples.iter().map(|sample| text(&data, sample, "endpoint")).collect();
    counted.sort_unstable();
    assert_eq!(counted, ["GET", "GET /cart", "GET /never", "POST /panics", "_OTHER /fails"]);
    let cart = requests.samples.iter().find(|sample| text(&data, sample, "endpoint") == "GET /cart").unwrap();
    let request = data.dictionary.get_link(cart.link);
    assert_eq!(request.trace_id, CALLER_TRACE);
    assert!(request.span_id != CALLER_SPAN, "a span of its own");
    let duration: u64 = text(&data, cart, "duration").parse().unwrap();
    assert!(duration >= 290_000_000, "{duration} ns, of which 300 ms of CPU time");
    let errors = profile(&data, "request_errors");
    let mut failed: Vec<_> = errors.samples.iter().map(|sample| text(&data, sample, "endpoint")).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["POST /panics", "_OTHER /fails"]);

    let cpu = profile(&data, "cpu");
    let of_cart = |sample: &&Sample| {
        text(&data, sample, "http.route") == "/cart"
            && text(&data, sample, "http.request.method") == "GET"
            && data.dictionary.get_link(sample.link) == request
    };
    let labeled: i64 = cpu.samples.iter().filter(of_cart).map(|sample| cpu.weight(sample)).sum();
    assert!((240_000_000..400_000_000).contains(&labeled), "{labeled} ns of 300 ms in the future and in its body");
}

#[test]
fn a_service_without_a_profiler_responds_as_before() {
    let _serial = one_at_a_time();
    struct Fails;
    impl Service<Request<()>> for Fails {
        type Response = Response<()>;
        type Error = &'static str;
        type Future = Ready<Result<Response<()>, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            ready(Err("refused"))
        }
    }
    let future = RequestLayer::new(|_, _| None).layer(Fails).call(request("GET", "/"));
    assert!(matches!(poll(pin!(future)), Poll::Ready(Err("refused"))));
}

#[test]
fn requests_beyond_the_limit_of_open_ones_are_lost_with_a_counter() {
    let _serial = one_at_a_time();
    let profiler = start_native(Config::default()).unwrap();
    let mut shop = RequestLayer::new(|_, _| None).layer(Shop);
    let open: Vec<_> = (0..65_536 + 3).map(|_| shop.call(request("GET", "/never"))).collect();
    assert_eq!(profiler.stats().counter("dropped.open_requests"), 3);
    profiler.stop();
    drop(open);
}

#[test]
fn a_new_thread_is_sampled_from_its_first_scope_on() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let profiler = start_native(Config { heap: false, ..with_receiver(&receiver) }).unwrap();
    // Threads of a pool end while it is idle, so that each request gets a new one.
    for request in 0..10_u32 {
        let work = spanprof::tag_wrapper([("request", request.to_string().as_str())], || {
            spanprof::bind(|| burn(Duration::from_millis(60)))
        });
        std::thread::spawn(work).join().unwrap();
    }
    assert!(profiler.flush(TIMEOUT));
    let data = receiver.next(TIMEOUT).unwrap();
    profiler.stop();

    let cpu = profile(&data, "cpu");
    let mut by_request = [0; 10];
    for sample in &cpu.samples {
        if let Ok(request) = text(&data, sample, "request").parse::<usize>() {
            by_request[request] += cpu.weight(sample);
        }
    }
    assert!(by_request.iter().all(|ns| (30_000_000..=90_000_000).contains(ns)), "{by_request:?} ns of 60 ms each");
}

#[test]
fn a_program_that_starts_thousands_of_short_threads_keeps_its_slots() {
    let _serial = one_at_a_time();
    let profiler = start_native(Config { heap: false, ..without_destination() }).unwrap();
    for _ in 0..10_000 {
        let work = || spanprof::tag_wrapper([("task", "short")], || ());
        std::thread::Builder::new().stack_size(64 * 1024).spawn(work).unwrap().join().unwrap();
    }
    let stats = profiler.stats();
    profiler.stop();
    assert_eq!(stats.counter("dropped.too_many_threads"), 0);
}

/// Ready at a time, at which another thread wakes the task.
struct Timer(std::time::Instant, bool);

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let left = self.0.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut self.1, true) {
            let waker = task.waker().clone();
            std::thread::spawn(move || {
                std::thread::sleep(left / 2);
                waker.wake_by_ref();
                std::thread::sleep(left / 2);
                waker.wake();
            });
        }
        Poll::Pending
    }
}

async fn wait_for_stock() {
    Timer(std::time::Instant::now() + Duration::from_millis(200), false).await;
}

#[test]
fn what_a_request_awaits_is_off_cpu_time_of_the_function_that_awaits() {
    let _serial = one_at_a_time();
    #[derive(Clone)]
    struct Waits;
    impl Service<Request<()>> for Waits {
        type Response = Response<ExpensiveBody>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            Box::pin(async {
                wait_for_stock().await;
                Ok(Response::new(ExpensiveBody(None)))
            })
        }
    }
    let receiver = Receiver200::start();
    let profiler = start_native(Config { heap: false, ..with_receiver(&receiver) }).unwrap();
    let mut service = RequestLayer::new(|uri, _| Some(uri.path())).layer(Waits);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let whole = service.call(request("GET", "/whole"));
    runtime.block_on(async { drop(tokio::spawn(whole).await.unwrap()) });
    let left = service.call(request("GET", "/left"));
    runtime.block_on(async {
        let left = tokio::spawn(left);
        std::thread::sleep(Duration::from_millis(100));
        left.abort();
        drop(left.await);
    });
    assert!(profiler.flush(TIMEOUT));
    let data = receiver.next(TIMEOUT).unwrap();
    profiler.stop();
    let off_cpu = profile(&data, "off_cpu");
    let awaited = |route: &str| -> i64 {
        let functions = |sample: &Sample| -> Vec<String> {
            let lines =
                data.dictionary.get_stack(sample.stack).iter().flat_map(|at| data.dictionary.get_location(*at).lines);
            lines
                .map(|line| data.dictionary.get_string(data.dictionary.get_function(line.function).name).to_owned())
                .collect()
        };
        let of_await = |sample: &&Sample| {
            let functions = functions(sample);
            text(&data, sample, "http.route") == route
                && functions.first().is_some_and(|leaf| leaf == "[await]")
                && functions.iter().any(|function| function.contains("wait_for_stock"))
        };
        off_cpu.samples.iter().filter(of_await).map(|sample| off_cpu.weight(sample)).sum::<i64>() / 1_000_000
    };
    assert!((195..300).contains(&awaited("/whole")), "{} ms of 200", awaited("/whole"));
    assert!((80..250).contains(&awaited("/left")), "{} ms of 100 until the client left", awaited("/left"));
}
