//! The Rust counterpart of xtask/live/pyroscope/program.py: a service of many requests, each with its own trace and span.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spanprof::config::Protocol;
use spanprof::{tag_wrapper, Config, Profiler};
use spanprof_os::current_thread_cpu_ns;

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID: &str = "b7ad6b7169203331";
const SPAN_CPU: Duration = Duration::from_millis(300);
const REQUEST_CPU: Duration = Duration::from_millis(4);

/// Sends one profile; writes the CPU time of its samples to the file `figure`.
pub fn run(endpoint: &str, protocol: &str, service: &str, requests: &str, figure: &str) -> Result<(), String> {
    let requests: u32 = requests.parse().map_err(|_| format!("`{requests}` is not a number of requests"))?;
    let protocol = Protocol::from_text(protocol).ok_or(format!("no protocol `{protocol}`"))?;
    let config = Config::builder()
        .service_name(service)
        .endpoint(endpoint.to_owned())
        .protocol(protocol)
        .sample_rate(250u32)
        .upload_interval(Duration::from_secs(60))
        .load();
    let profiler = Profiler::start(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    let mut sum = tag_wrapper([("endpoint", "/cart"), ("trace_id", TRACE_ID), ("span_id", SPAN_ID)], || burn(SPAN_CPU));
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64 | 1);
    for number in 1..requests {
        let id = seed.wrapping_mul(u64::from(number) * 2 + 1) | 1;
        let (trace_id, span_id) = (format!("{id:016x}{seed:016x}"), format!("{id:016x}"));
        let endpoint = if number % 3 == 0 { "/pay" } else { "/cart" };
        let labels = [("endpoint", endpoint), ("trace_id", trace_id.as_str()), ("span_id", span_id.as_str())];
        sum ^= tag_wrapper(labels, || burn(REQUEST_CPU));
    }
    let delivered = profiler.flush(Duration::from_secs(20));
    let stats = profiler.stats();
    profiler.stop();
    if !delivered {
        return Err(format!("not delivered: {:?}", stats.get("export.0.last_error")));
    }
    println!("burned {}", sum != 1);
    let sampled_ns = stats.counter("samples.cpu_ns").to_string();
    std::fs::write(figure, sampled_ns).map_err(|error| format!("{figure}: {error}"))
}

/// Uses CPU time of this thread; the profile must attribute it to this name.
#[inline(never)]
fn burn(cpu: Duration) -> u64 {
    let until_ns = current_thread_cpu_ns() + cpu.as_nanos() as u64;
    let mut total = 0u64;
    while current_thread_cpu_ns() < until_ns {
        for number in 0..10_000u64 {
            total = std::hint::black_box(total.wrapping_mul(31).wrapping_add(number));
        }
    }
    total
}
