//! Answers pulls: one collection of samples at a time, beside the open window. Called on the thread of the server that
//! received the request, never on the drain thread.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control;
use crate::deliver::reduction;
use crate::host_log::{log, LogLevel};
use crate::http::listener::HttpListener;
use crate::pull::{
    check_access, command_line, index, AccessRules, HttpRequest, HttpResponse, ProfileName, ProfileRequest,
    PullTransport, MAX_BODY_BYTES, PULL_PREFIX,
};
use crate::session::current::current_session;
use crate::session::drain_control::{CollectionStep, PULL_COLLECTION};
use crate::session::Session;
use spanprof_aggregate::SampleSelection;
use spanprof_config::{Config, DestinationConfig, DestinationType};
use spanprof_profile::encode::{pprof, text};
use spanprof_profile::{ProfilesData, Value};
use spanprof_signal::SampleKind;

/// Stack size of the listener's threads, which encode profiles.
const STACK_BYTES: usize = 512 * 1024;
/// Timeout for the drain thread to begin or end a collection.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a pull checks whether its client has left.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Starts the listener. A port that cannot be bound is a warning: it never stops the program.
pub(crate) fn start(session: &Session) {
    let Some(address) = session.config.active.load().pull_address() else { return };
    let handler = |request: &HttpRequest, has_left: &dyn Fn() -> bool| {
        let index_name = PULL_PREFIX.rsplit('/').next().unwrap_or_default().to_owned();
        answer(&HttpRequest { index_name, ..request.clone() }, PullTransport::Listener, has_left)
    };
    let start_thread = |name, body| spanprof_os::start_own_thread(name, STACK_BYTES, body).map(drop);
    match HttpListener::start(
        &address.host,
        address.port,
        Arc::new(handler),
        start_thread,
        spanprof_os::close_in_children,
    ) {
        Ok(listener) => {
            log(LogLevel::Info, &format!("spanprof: profiles at http://{}{PULL_PREFIX}/", listener.address()));
            // Set once per session.
            let _ = session.pull.listener.set(listener);
        }
        Err(error) => log(LogLevel::Warning, &format!("spanprof: no pulls: {}", error.message)),
    }
}

/// Ends the listener.
pub(crate) fn stop(session: &Session) {
    if let Some(listener) = session.pull.listener.get() {
        spanprof_os::forget_close_in_children();
        listener.stop();
    }
}

/// Answers a request for a profile or a control operation; blocks for the duration that it requests. `has_left` reports whether
/// the client has left, which ends the collection early.
pub fn answer(request: &HttpRequest, transport: PullTransport, has_left: &dyn Fn() -> bool) -> HttpResponse {
    let Some(session) = current_session().filter(|session| session.is_alive()) else {
        return HttpResponse::refusal(503, "the profiler is not running");
    };
    session.counters.pull_requests.add(1);
    let response = match control::is_control_path(&request.path) {
        // The listener refuses it itself.
        _ if request.body.len() > MAX_BODY_BYTES => Err(HttpResponse::refusal(413, "the body is larger than 64 KiB")),
        true => session.access(request, transport).map(|()| {
            let has_token = session.config.requested.load().pull_token.is_some();
            control::respond(request, has_token)
        }),
        false => session.answer(request, transport, has_left),
    };
    let response = response.unwrap_or_else(|refusal| refusal);
    let counter = match response.status {
        200 | 301 => &session.counters.pull_answered,
        401 | 403 => &session.counters.pull_refused_access,
        429 => &session.counters.pull_refused_busy,
        _ => &session.counters.pull_refused_other,
    };
    counter.add(1);
    response
}

impl Session {
    /// The refusal of a request without access.
    fn access(&self, request: &HttpRequest, transport: PullTransport) -> Result<(), HttpResponse> {
        let config = self.config.active.load();
        let address = config.pull_address();
        let host = address.as_ref().map(|address| address.host.as_str());
        check_access(request, &AccessRules { token: config.pull_token.as_ref(), host, transport })
    }

    fn answer(
        &self,
        request: &HttpRequest,
        transport: PullTransport,
        has_left: &dyn Fn() -> bool,
    ) -> Result<HttpResponse, HttpResponse> {
        let config = self.config.active.load_full();
        self.access(request, transport)?;
        if !config.enabled {
            return Err(HttpResponse::refusal(503, "the profiler is disabled"));
        }
        let not_found = || HttpResponse::refusal(404, "there is no such page; see /debug/pprof/");
        let name = request.name().ok_or_else(not_found)?;
        if !matches!(&*request.method, "GET" | "HEAD") {
            return Err(HttpResponse::refusal(405, "use GET").with("Allow", "GET, HEAD"));
        }
        match name {
            "" => {
                if let Some(location) = request.with_slash() {
                    let moved = HttpResponse::refusal(301, "the index page has a final slash");
                    return Ok(moved.with("Location", &location));
                }
                let names = ProfileName::ALL.map(|name| (name, self.unavailable(name, &config)));
                Ok(index(&self.outputs.resource.load().service_name, &names))
            }
            "cmdline" => Ok(command_line()),
            _ => {
                let name = ProfileName::ALL.into_iter().find(|profile| profile.text() == name).ok_or_else(not_found)?;
                let profile = ProfileRequest::parse(name, request)?;
                if let Some(reason) = self.unavailable(name, &config) {
                    return Err(HttpResponse::refusal(404, &reason));
                }
                if request.method == "HEAD" {
                    return Ok(HttpResponse::page(PPROF, Vec::new()));
                }
                let data = self.collect(&profile, has_left)?;
                Ok(encoded(data, &profile, &config))
            }
        }
    }

    /// Why a profile cannot be pulled.
    pub(crate) fn unavailable(&self, name: ProfileName, config: &Config) -> Option<String> {
        let is_on = match name.kinds()[0] {
            SampleKind::Cpu => config.cpu && self.sampling.clocks.load().is_some(),
            SampleKind::Wall => config.wall,
            SampleKind::Alloc => config.heap,
            SampleKind::Lock => config.lock,
            _ => config.threads,
        };
        let key = name.shown_kind().key.unwrap_or_default();
        if !is_on {
            return Some(format!("{} is off: set {key}=true", name.text()));
        }
        match name {
            ProfileName::Heap | ProfileName::Allocs => {
                self.sampling.no_heap_reason.load_full().map(|reason| (*reason).clone())
            }
            ProfileName::Block | ProfileName::Mutex if !self.runtime.submits(SampleKind::Lock) => {
                Some("this runtime has no samples of lock waits".to_owned())
            }
            ProfileName::Wall | ProfileName::Threads | ProfileName::Goroutine
                if self.runtime.capture_other().is_none() =>
            {
                Some("this runtime does not walk other threads".to_owned())
            }
            _ => None,
        }
    }

    /// Collects the samples of a pull; blocks for its duration.
    fn collect(&self, request: &ProfileRequest, has_left: &dyn Fn() -> bool) -> Result<ProfilesData, HttpResponse> {
        let Some(_collecting) = Collecting::begin(self) else {
            let text = "another profile is being collected; there is one at a time";
            return Err(HttpResponse::refusal(429, text).with("Retry-After", "5"));
        };
        let failed = || HttpResponse::refusal(503, "the profiler stopped meanwhile");
        let kinds = request.name.kinds();
        if request.name.is_moment() {
            if !self.collect_step(CollectionStep::Begin(SampleSelection::of_kinds(kinds))) {
                return Err(failed());
            }
            self.submit_threads_on_demand();
        } else if let Some(duration) = request.duration {
            self.release_held_back(kinds);
            if !self.collect_step(CollectionStep::Begin(SampleSelection::of_kinds(kinds))) {
                return Err(failed());
            }
            let deadline = Instant::now() + duration;
            while Instant::now() < deadline {
                if !self.control.sleep_while_running(deadline.min(Instant::now() + POLL_INTERVAL)) || has_left() {
                    return Err(failed());
                }
            }
        }
        self.release_held_back(kinds);
        if !self.collect_step(CollectionStep::End(kinds.to_vec())) {
            return Err(failed());
        }
        self.control.take_collected(PULL_COLLECTION).ok_or_else(failed)
    }

    fn collect_step(&self, step: CollectionStep) -> bool {
        self.control.collect(PULL_COLLECTION, step, DRAIN_TIMEOUT, self.inbox)
    }

    /// Makes the wall sampler submit its held-back samples.
    fn release_held_back(&self, kinds: &[SampleKind]) {
        if kinds.contains(&SampleKind::Wall) {
            self.release_wall(false);
        }
    }
}

/// The only collection of a session; ends when dropped.
struct Collecting<'a>(&'a Session);

impl<'a> Collecting<'a> {
    fn begin(session: &'a Session) -> Option<Self> {
        // Lazily: a value that is dropped would end the collection of another pull.
        (!session.pull.is_collecting.swap(true, Ordering::AcqRel)).then(|| Self(session))
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.0.control.cancel_collection(PULL_COLLECTION, self.0.inbox);
        self.0.pull.is_collecting.store(false, Ordering::Release);
    }
}

const PPROF: &str = "application/octet-stream";

/// The response with the detail that files have.
fn encoded(data: ProfilesData, request: &ProfileRequest, config: &Config) -> HttpResponse {
    let file = DestinationConfig::new(DestinationType::File);
    let mut data = reduction::of_destination(&file, config).apply(data);
    let default = request.name.shown_kind().default_type();
    let attribute = data.dictionary.attribute(pprof::names::DEFAULT_SAMPLE_TYPE, Value::String(default), "");
    let attributes = data.dictionary.attribute_set(&[attribute]);
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles).take(1) {
        profile.attributes = attributes;
    }
    if request.is_text {
        return HttpResponse::page("text/plain; charset=utf-8", text::encode(&data).into_bytes());
    }
    HttpResponse::page(PPROF, pprof::encode(&data))
        .with("Content-Disposition", &format!("attachment; filename=\"{}.pb.gz\"", request.name.text()))
}
