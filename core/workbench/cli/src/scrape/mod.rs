//! Pulls pprof profiles from endpoints (Go's `net/http/pprof`, `/debug/pprof` of the packages) at intervals and forwards them
//! to destinations. One async thread for sockets and timers; decoding and encoding on blocking threads. Called by the verb
//! `scrape`.

mod config;
mod credentials;
mod delivery;
mod destination;
mod schedule;
mod section;
mod target_client;
mod target_status;
#[cfg(test)]
mod tests;
mod totals;
mod window;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use config::ScrapeConfig;

use config::ScrapedEndpoint;
use delivery::ScrapeDelivery;
use schedule::PullSchedule;
use spanprof_answers::failure::Failure;
use spanprof_answers::selection::moment::unix_ns;
use target_client::{PullError, TargetClient};
use target_status::TargetStatus;
use window::{scraped_window, EndpointHistory, WindowShape};

/// Profiles decoded at the same time; each needs up to 256 MB.
const MAX_DECODERS: usize = 2;
/// Interval at which destinations are checked for a change.
const DELIVERY_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time for delivery at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Distance of the two pulls of `--once` if no endpoint has a length.
const DEFAULT_ONCE_SECONDS: u64 = 10;

/// Pulls from the targets of one configuration.
pub(crate) struct Scraper {
    endpoints: Vec<Arc<EndpointScraper>>,
    statuses: Vec<Arc<TargetStatus>>,
    delivery: Arc<ScrapeDelivery>,
    report: LineReport,
    decoders: Arc<Semaphore>,
}

/// Receives log lines.
pub(crate) type LineReport = Arc<dyn Fn(&str) + Send + Sync>;

/// Result of a run.
pub(crate) struct ScrapeOutcome {
    /// Whether each pull succeeded and everything was delivered.
    pub is_complete: bool,
    /// Counters of targets and destinations.
    pub status: serde_json::Value,
    /// The same in one sentence.
    pub summary: String,
}

/// Pulls from one endpoint.
struct EndpointScraper {
    client: Arc<TargetClient>,
    endpoint: ScrapedEndpoint,
    shape: WindowShape,
    status: Arc<TargetStatus>,
    /// Position in `status`.
    index: usize,
}

impl Scraper {
    /// Reads certificates. With `is_dry`, neither directories are created nor destinations opened, and `None` is returned.
    pub fn start(config: ScrapeConfig, report: LineReport, is_dry: bool) -> Result<Option<Self>, Failure> {
        let (mut endpoints, mut statuses) = (Vec::new(), Vec::new());
        for target in config.targets {
            let names = target.endpoints.iter().map(|endpoint| endpoint.name.as_str());
            let status = Arc::new(TargetStatus::new(&target.shown, names));
            statuses.push(status.clone());
            let (target_endpoints, attributes, instance) =
                (target.endpoints.clone(), target.attributes.clone(), target.authority.clone());
            let client = Arc::new(TargetClient::start(target)?);
            for (index, endpoint) in target_endpoints.into_iter().enumerate() {
                let shape = WindowShape {
                    name: endpoint.name.clone(),
                    attributes: attributes.clone(),
                    instance: instance.clone(),
                    interval_ns: endpoint.interval.as_nanos() as u64,
                    is_measured: endpoint.seconds.is_some(),
                };
                let (client, status) = (client.clone(), status.clone());
                endpoints.push(Arc::new(EndpointScraper { client, endpoint, shape, status, index }));
            }
        }
        if is_dry {
            return Ok(None);
        }
        let delivery = Arc::new(ScrapeDelivery::start(&config.destinations)?);
        Ok(Some(Self { endpoints, statuses, delivery, report, decoders: Arc::new(Semaphore::new(MAX_DECODERS)) }))
    }

    /// Pulls until `stop` resolves, or each endpoint once; then delivers the queue.
    pub fn run(self, is_once: bool, stop: impl Future<Output = ()>) -> Result<ScrapeOutcome, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Failure::new(format!("cannot start: {error}")))?;
        runtime.block_on(async {
            tokio::select! {
                () = stop => {}
                () = self.pull_all(is_once) => {}
            }
        });
        // A decoder may still be running, and a name look-up may hang.
        runtime.shutdown_timeout(Duration::from_millis(500));
        let is_delivered = self.delivery.stop(STOP_TIMEOUT);
        Ok(self.outcome(is_delivered))
    }

    async fn pull_all(&self, is_once: bool) {
        let mut tasks = JoinSet::new();
        let seconds = self.endpoints.iter().filter_map(|it| it.endpoint.seconds).max().unwrap_or(DEFAULT_ONCE_SECONDS);
        for endpoint in &self.endpoints {
            let context = PullContext {
                scraper: endpoint.clone(),
                delivery: self.delivery.clone(),
                report: self.report.clone(),
                decoders: self.decoders.clone(),
            };
            if is_once {
                tasks.spawn(context.pull_once(Duration::from_secs(seconds)));
            } else {
                tasks.spawn(context.pull_repeatedly());
            }
        }
        let watch_delivery = async {
            let mut failing = Vec::new();
            loop {
                tokio::time::sleep(DELIVERY_CHECK_INTERVAL).await;
                self.delivery.changes(&mut failing).iter().for_each(|line| (self.report)(line));
            }
        };
        tokio::select! {
            () = watch_delivery => {}
            () = async { while tasks.join_next().await.is_some() {} } => {}
        }
    }

    fn outcome(&self, is_delivered: bool) -> ScrapeOutcome {
        let (pulled, failed) =
            self.statuses.iter().map(|status| status.totals()).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let targets: Vec<_> = self.statuses.iter().map(|status| status.json()).collect();
        let destinations = self.delivery.status();
        let sum = |key: &str| destinations.iter().filter_map(|it| it[key].as_u64()).sum::<u64>();
        let summary = format!(
            "{pulled} profiles pulled, {failed} pulls failed; {} requests and files delivered, {} lost",
            sum("sent"),
            sum("dropped")
        );
        let is_complete = is_delivered && failed == 0;
        ScrapeOutcome { is_complete, status: json!({"targets": targets, "destinations": destinations}), summary }
    }
}

/// Whether the profiles of a pull are forwarded.
#[derive(Clone, Copy, PartialEq)]
enum Forwarding {
    Always,
    /// Not if they contain totals, which need a second pull.
    UnlessTotals,
}

/// An endpoint, and the parts that all endpoints share.
struct PullContext {
    scraper: Arc<EndpointScraper>,
    delivery: Arc<ScrapeDelivery>,
    report: LineReport,
    decoders: Arc<Semaphore>,
}

impl PullContext {
    async fn pull_repeatedly(self) {
        let mut history = EndpointHistory::default();
        let mut schedule = PullSchedule::new(self.scraper.endpoint.interval, Instant::now());
        loop {
            tokio::time::sleep_until(schedule.next()).await;
            if self.pull(&mut history, Forwarding::Always).await {
                let skipped = schedule.succeeded(Instant::now());
                self.scraper.status.count(self.scraper.index, |counters| counters.skipped += skipped);
            } else {
                schedule.failed(Instant::now());
            }
        }
    }

    /// One pull. Totals are pulled again after `distance`, and their difference is forwarded.
    async fn pull_once(self, distance: Duration) {
        let mut history = EndpointHistory::default();
        if self.pull(&mut history, Forwarding::UnlessTotals).await && history.has_totals() {
            tokio::time::sleep(distance).await;
            self.pull(&mut history, Forwarding::Always).await;
        }
    }

    /// Pulls, decodes and forwards; false when there was no profile.
    async fn pull(&self, history: &mut EndpointHistory, forwarding: Forwarding) -> bool {
        let EndpointScraper { client, endpoint, status, index, .. } = &*self.scraper;
        let result = match client.get(endpoint).await {
            Ok(body) => self.process(body, history, forwarding).await.map_err(PullError::Refused),
            Err(error) => Err(error),
        };
        let lines = match &result {
            Ok(()) => status.succeeded(*index, unix_ns()),
            Err(PullError::Absent(message)) if !endpoint.is_named => status.absent(*index, message),
            Err(error) => status.failed(*index, error),
        };
        lines.iter().for_each(|line| (self.report)(line));
        result.is_ok()
    }

    async fn process(
        &self,
        body: bytes::Bytes,
        history: &mut EndpointHistory,
        forwarding: Forwarding,
    ) -> Result<(), String> {
        let _permit = self.decoders.clone().acquire_owned().await.map_err(|error| error.to_string())?;
        let (scraper, delivery) = (self.scraper.clone(), self.delivery.clone());
        let mut taken = std::mem::take(history);
        let decoding = tokio::task::spawn_blocking(move || {
            let now_unix_ns = unix_ns();
            let decoded = scraped_window(&body, &scraper.shape, &mut taken, now_unix_ns).map(|window| {
                let samples = window.data.sample_count() as u64;
                scraper.status.count(scraper.index, |counters| {
                    counters.bytes += body.len() as u64;
                    counters.samples += samples;
                    counters.restarts += u64::from(window.has_restarted);
                });
                if samples > 0 && (forwarding == Forwarding::Always || !taken.has_totals()) {
                    delivery.send(&scraper.endpoint.name, window.data, now_unix_ns / 1_000_000);
                }
            });
            (taken, decoded)
        });
        // After a panic the next totals are a new base.
        let (taken, decoded) = decoding.await.map_err(|_| "an internal error; please report it".to_owned())?;
        *history = taken;
        decoded
    }
}
