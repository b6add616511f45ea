//! The thread of the wall sampler, and the requests to it. Not here: the work of a tick (`wall`).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::wall::pace as wall_pace;
use crate::wall::sampler::WallSampler;
use spanprof_aggregate::runtime::Runtime;
use spanprof_aggregate::Counters;
use spanprof_config::Config;
use spanprof_os::{Inbox, StartedThread};
use spanprof_signal::{parking, CaptureOtherFn};

/// The thread and its control.
pub(crate) struct WallThread {
    control: Arc<WallControl>,
    thread: StartedThread,
}

pub(crate) struct WallControl {
    requests: Mutex<WallRequests>,
    changed: Condvar,
}

/// The configuration of the sampler, and whether it samples for collections too.
#[derive(Clone)]
pub(crate) struct WallDemand {
    pub config: Arc<Config>,
    pub for_collections: bool,
}

impl WallDemand {
    /// Whether the sampler ticks. The live threads alone need no ticks.
    fn samples_time(&self) -> bool {
        self.config.wall || self.config.off_cpu || self.for_collections
    }
}

struct WallRequests {
    demand: WallDemand,
    /// Number of requests and changes of the demand so far.
    changes: u64,
    stop: bool,
    /// Number of requests to submit the held-back samples, and of those that are done.
    releases: u64,
    released: u64,
    /// Whether one of these requests includes the live threads.
    live_threads: bool,
    /// Whether one of them is a pull of the live threads.
    on_demand: bool,
}

/// A request to submit samples before a window ends.
struct Release {
    number: u64,
    /// Whether to submit the live threads.
    live_threads: bool,
    on_demand: bool,
}

impl WallThread {
    pub fn set_demand(&self, demand: WallDemand) {
        drop(self.control.change(|requests| requests.demand = demand));
    }

    pub fn control(&self) -> Arc<WallControl> {
        self.control.clone()
    }

    pub fn stop(self) {
        drop(self.control.change(|requests| requests.stop = true));
        // The thread waits for these requests only; it counts a panic itself.
        self.thread.join();
    }
}

fn new_control(demand: WallDemand) -> Arc<WallControl> {
    let requests = WallRequests {
        demand,
        changes: 0,
        stop: false,
        releases: 0,
        released: 0,
        live_threads: false,
        on_demand: false,
    };
    Arc::new(WallControl { requests: Mutex::new(requests), changed: Condvar::new() })
}

/// Starts the thread.
pub(crate) fn spawn(
    runtime: Arc<dyn Runtime>,
    capture: CaptureOtherFn,
    inbox: &'static Inbox,
    counters: Arc<Counters>,
    processors: Option<f64>,
    demand: WallDemand,
) -> std::io::Result<WallThread> {
    let control = new_control(demand);
    let own_control = control.clone();
    let mut sampler = WallSampler::new(runtime, capture, inbox, counters.clone(), processors);
    let thread = spanprof_os::start_own_thread(c"spanprof-wall", 256 * 1024, move || {
        let mut cpu_ns = 0;
        let sampling = std::panic::AssertUnwindSafe(|| {
            loop {
                let (demand, stop, release) = own_control.sleep(&mut sampler);
                let config = &demand.config;
                if demand.samples_time() {
                    // Also before the end, to sample the time since the last tick.
                    sampler.tick(config, spanprof_os::monotonic_ns());
                } else {
                    sampler.pause(spanprof_os::monotonic_ns());
                }
                if stop {
                    sampler.finish();
                }
                if config.threads && (stop || release.as_ref().is_some_and(|release| release.live_threads)) {
                    sampler.submit_live_threads(config);
                }
                let cpu_before_ns = std::mem::replace(&mut cpu_ns, spanprof_os::current_thread_cpu_ns());
                counters.wall_cpu_ns.add(cpu_ns - cpu_before_ns);
                if stop {
                    break;
                }
                if let Some(release) = release {
                    if release.on_demand {
                        sampler.submit_threads_on_demand(config);
                    }
                    sampler.release(spanprof_os::monotonic_ns());
                    own_control.lock().released = release.number;
                    own_control.changed.notify_all();
                }
            }
        });
        if std::panic::catch_unwind(sampling).is_err() {
            counters.panics.add(1);
        }
    })?;
    Ok(WallThread { control, thread })
}

impl WallControl {
    fn lock(&self) -> MutexGuard<'_, WallRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the requests and wakes the sampler, also while it is parked or about to be.
    fn change(&self, change: impl FnOnce(&mut WallRequests)) -> MutexGuard<'_, WallRequests> {
        let mut requests = self.lock();
        change(&mut requests);
        requests.changes += 1;
        self.changed.notify_all();
        parking::unpark();
        requests
    }

    /// Parks the sampler until a context opens, or a change after those that it has seen: also one before it sleeps.
    fn park(&self, sampler: &mut WallSampler, seen: u64) {
        sampler.park(|| self.lock().changes != seen);
    }

    /// Requests the held-back samples, and the live threads if the configuration has them and `live_threads` is true. Waits
    /// until they are submitted, at most for `timeout` and while the sampler runs.
    pub fn release(&self, timeout: Duration, live_threads: bool) {
        self.request(timeout, |requests| requests.live_threads |= live_threads);
    }

    /// Requests the live threads for a pull, as [`WallControl::release`].
    pub fn submit_threads_on_demand(&self, timeout: Duration) {
        self.request(timeout, |requests| requests.on_demand = true);
    }

    fn request(&self, timeout: Duration, add: impl FnOnce(&mut WallRequests)) {
        let deadline = Instant::now() + timeout;
        let mut requests = self.change(|requests| {
            requests.releases += 1;
            add(requests);
        });
        let number = requests.releases;
        while requests.released < number && !requests.stop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            requests = self.changed.wait_timeout(requests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps until the next tick is due, or a request arrives. Returns the configuration, whether to stop, and the request.
    fn sleep(&self, sampler: &mut WallSampler) -> (WallDemand, bool, Option<Release>) {
        let mut requests = self.lock();
        let config = &requests.demand.config;
        let samples_all = requests.demand.for_collections || config.wall;
        let is_of_requests = !samples_all && config.has_off_cpu_of_requests_only();
        let at_least_ns = if is_of_requests { wall_pace::REQUESTS_BASE_NS } else { 0 };
        let base_ns = wall_pace::base_ns(config, sampler.processors).max(at_least_ns);
        let next_tick_ns = sampler.pace.plan(base_ns, &mut sampler.random);
        loop {
            let left_ns = next_tick_ns.saturating_sub(spanprof_os::monotonic_ns());
            let has_request = requests.releases > requests.released;
            let ticks = requests.demand.samples_time();
            if ticks {
                // Without ticks, held-back samples of the last ones are still those of a collection.
                sampler.is_on_demand = !requests.demand.config.wall;
                sampler.is_of_requests = is_of_requests;
            }
            if ticks && sampler.may_park() && !requests.stop && !has_request {
                let seen = requests.changes;
                drop(requests);
                self.park(sampler, seen);
                return self.sleep(sampler);
            }
            if requests.stop || has_request || ticks && left_ns == 0 {
                let live_threads = std::mem::take(&mut requests.live_threads);
                let on_demand = std::mem::take(&mut requests.on_demand);
                let release = has_request.then_some(Release { number: requests.releases, live_threads, on_demand });
                return (requests.demand.clone(), requests.stop, release);
            }
            requests = if ticks {
                let left = Duration::from_nanos(left_ns);
                self.changed.wait_timeout(requests, left).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.changed.wait(requests).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_aggregate::runtime::DisabledRuntime;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_request_before_the_sampler_sleeps_is_not_slept_over() {
        let words = Vec::leak((0..1024).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
        let capture: CaptureOtherFn = |_, _, _| spanprof_signal::Captured::Walked;
        let mut sampler = WallSampler::new(Arc::new(DisabledRuntime), capture, inbox, Arc::default(), None);
        let demand = WallDemand { config: Arc::default(), for_collections: false };
        let control = new_control(demand);
        let seen = control.lock().changes;
        // After the sampler found nothing to do, and before it is parked: no later wakeup ends its sleep.
        drop(control.change(|requests| requests.stop = true));
        control.park(&mut sampler, seen);
    }
}
