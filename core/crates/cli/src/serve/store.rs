//! What `serve` knows: an index in memory over the files of its directory, retention, and the answers to queries.
//! Not the files themselves (`directory`), not HTTP (`api`). Every method may take the time of file reads and decoding:
//! called from blocking threads only.

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spanprof_profile::decode::{self, DecodeLimits};
use spanprof_profile::query::{self, Filter, TypeSummary};
use spanprof_profile::ProfilesData;

use super::directory::{self, Directory};
use super::received::Received;
use super::slices::{self, Part, Slices};
use super::spans::Spans;
use super::window::Window;
use crate::detail::Detail;

/// Memory for decoded windows kept between queries.
const DECODED_CACHE_BYTES: usize = 48 << 20;
/// Answers kept, so that the table and the flame graph of one view cost one merge.
const ANSWERS_KEPT: usize = 4;
/// Windows merged into the answer at once: bounds what is in memory, without merging a large answer once per window.
const MERGE_BATCH: usize = 24;
/// Samples of one answer, about 250 MB of them: reached only by answers with every detail.
const MAX_ANSWER_SAMPLES: usize = 1_500_000;
/// A query stops here and says what it left out.
const QUERY_DEADLINE: Duration = Duration::from_secs(10);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of all kept requests as files; beyond, the oldest go.
    pub max_bytes: u64,
    /// Time since arrival after which a request goes.
    pub max_age: Duration,
}

/// Counters of the store, for `/api/stats`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub removed_by_size: AtomicU64,
    pub removed_by_age: AtomicU64,
    pub unreadable_files: AtomicU64,
}

/// An answer: the samples, and how many windows they come from.
#[derive(Debug)]
pub(crate) struct Answer {
    pub data: ProfilesData,
    /// Of each window what passed, for a timeline.
    pub parts: Vec<TypeSummary>,
    pub spans: Spans,
    pub windows: usize,
    /// Windows that could hold more and were not looked at: the time was over, or the answer became too large.
    pub windows_left_out: usize,
}

/// An answer given before.
#[derive(Debug)]
struct Known {
    generation: u64,
    filter: Filter,
    detail: Detail,
    answer: Arc<Answer>,
}

/// The kept windows.
#[derive(Debug)]
pub(crate) struct Store {
    directory: Directory,
    retention: Retention,
    windows: Mutex<Vec<Arc<Window>>>,
    /// Changes whenever the windows do.
    generation: AtomicU64,
    indexing: AtomicBool,
    stopping: AtomicBool,
    decoded: Mutex<VecDeque<(PathBuf, Arc<ProfilesData>)>>,
    answers: Mutex<VecDeque<Known>>,
    slices: Slices,
    pub received: Received,
    pub counters: Counters,
}

impl Store {
    pub(crate) fn new(directory: Directory, retention: Retention) -> Self {
        Store {
            directory,
            retention,
            windows: Mutex::default(),
            generation: AtomicU64::new(0),
            indexing: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            decoded: Mutex::default(),
            answers: Mutex::default(),
            slices: Slices::default(),
            received: Received::default(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Whether the files of earlier runs are still being read.
    pub(crate) fn is_indexing(&self) -> bool {
        self.indexing.load(Ordering::Relaxed)
    }

    /// Ends [`Store::index`] early.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Reads the directory, newest file first; what cannot be read is reported through `report` and passed over.
    pub(crate) fn index(&self, limits: &DecodeLimits, mut report: impl FnMut(String)) {
        match self.directory.list() {
            Ok(found) => {
                for found in found {
                    if self.stopping.load(Ordering::Relaxed) {
                        break;
                    }
                    // Received since the start, hence known already.
                    if self.windows().iter().any(|window| window.path == found.path) {
                        continue;
                    }
                    match read_window(&found.path, limits) {
                        Ok(data) => {
                            let directory::Found { path, bytes, received_unix_ms, ours } = found;
                            self.remember(Window::new(&data, path, bytes, received_unix_ms, ours));
                        }
                        Err(reason) => {
                            self.counters.unreadable_files.fetch_add(1, Ordering::Relaxed);
                            report(format!("passed over {}: {reason}", found.path.display()));
                        }
                    }
                }
            }
            Err(error) => report(format!("cannot list {}: {error}", self.directory.path().display())),
        }
        self.indexing.store(false, Ordering::Relaxed);
        self.retain(unix_ms());
    }

    /// Keeps one received request. `data` is what `gzipped` decodes to.
    pub(crate) fn keep(&self, gzipped: &[u8], data: &ProfilesData) -> std::io::Result<()> {
        let received_unix_ms = unix_ms();
        let path = self.directory.write(gzipped, received_unix_ms)?;
        self.remember(Window::new(data, path, gzipped.len() as u64, received_unix_ms, true));
        self.retain(received_unix_ms);
        Ok(())
    }

    /// All windows, oldest first.
    pub(crate) fn windows(&self) -> Vec<Arc<Window>> {
        lock(&self.windows).clone()
    }

    fn remember(&self, window: Window) {
        self.received.add(&window.identities);
        let mut windows = lock(&self.windows);
        let at = windows.partition_point(|other| other.received_unix_ms <= window.received_unix_ms);
        windows.insert(at, Arc::new(window));
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the oldest windows while there are too many bytes, and all that are too old. The newest always stays.
    pub(crate) fn retain(&self, now_unix_ms: u64) {
        let max_age_ms = u64::try_from(self.retention.max_age.as_millis()).unwrap_or(u64::MAX);
        let mut windows = lock(&self.windows);
        let newest = windows.last().map(|window| window.path.clone());
        let mut bytes: u64 = windows.iter().filter(|window| window.ours).map(|window| window.bytes).sum();
        let mut removed = Vec::new();
        windows.retain(|window| {
            let is_old = window.received_unix_ms.saturating_add(max_age_ms) < now_unix_ms;
            let is_too_much = bytes > self.retention.max_bytes && Some(&window.path) != newest.as_ref();
            if !window.ours || !(is_old || is_too_much) {
                return true;
            }
            bytes -= window.bytes;
            let counter = if is_old { &self.counters.removed_by_age } else { &self.counters.removed_by_size };
            counter.fetch_add(1, Ordering::Relaxed);
            removed.push(window.clone());
            false
        });
        drop(windows);
        if !removed.is_empty() {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        for window in removed {
            self.received.remove(&window.identities);
            let _ = std::fs::remove_file(&window.path);
        }
    }

    /// The samples that pass `filter`, newest windows first until the deadline.
    pub(crate) fn answer(&self, filter: &Filter, detail: Detail, limits: &DecodeLimits) -> Arc<Answer> {
        let generation = self.generation.load(Ordering::Relaxed);
        let is_same = |of: &&Known| of.generation == generation && of.filter == *filter && of.detail == detail;
        if let Some(known) = lock(&self.answers).iter().find(is_same) {
            return known.answer.clone();
        }
        let started = Instant::now();
        let mut sum = Sum::default();
        let mut windows_left_out = 0;
        let windows: Vec<_> = self.windows().into_iter().rev().filter(|window| window.may_hold(filter)).collect();
        for slice in slices::cut(&windows) {
            let is_kept = detail == Detail::Stacks && slices::is_whole(slice, filter);
            if let Some(part) = is_kept.then(|| self.slices.find(slice, filter)).flatten() {
                sum.add(part);
                continue;
            }
            let mut part = Sum::default();
            let mut skipped = 0;
            for window in slice {
                if started.elapsed() > QUERY_DEADLINE || sum.samples + part.samples > MAX_ANSWER_SAMPLES {
                    skipped += 1;
                    continue;
                }
                // Gone by retention, or changed under us: then there is nothing to add.
                let Ok(data) = self.decoded(&window.path, limits) else { continue };
                part.add(Arc::new(passing(filter, detail, &data)));
            }
            let part = Arc::new(part.end());
            if is_kept && skipped == 0 {
                self.slices.keep(slice, filter, &part);
            }
            windows_left_out += skipped;
            sum.add(part);
        }
        let Part { data, summaries: parts, spans, windows } = sum.end();
        let answer = Arc::new(Answer { data, parts, spans, windows, windows_left_out });
        let mut answers = lock(&self.answers);
        answers.truncate(ANSWERS_KEPT - 1);
        answers.push_front(Known { generation, filter: filter.clone(), detail, answer: answer.clone() });
        answer
    }

    fn decoded(&self, path: &Path, limits: &DecodeLimits) -> Result<Arc<ProfilesData>, String> {
        {
            let mut decoded = lock(&self.decoded);
            if let Some(at) = decoded.iter().position(|(of, _)| of == path) {
                if let Some(entry) = decoded.remove(at) {
                    let data = entry.1.clone();
                    decoded.push_front(entry);
                    return Ok(data);
                }
            }
        }
        let data = Arc::new(read_window(path, limits)?);
        let mut decoded = lock(&self.decoded);
        decoded.push_front((path.to_owned(), data.clone()));
        let mut held = 0;
        decoded.retain(|(_, data)| {
            held += memory_bytes(data);
            held <= DECODED_CACHE_BYTES
        });
        Ok(data)
    }
}

/// Parts added up a batch at a time.
#[derive(Default)]
struct Sum {
    merged: Part,
    batch: Vec<Arc<Part>>,
    samples: usize,
}

impl Sum {
    fn add(&mut self, part: Arc<Part>) {
        if part.windows == 0 {
            return;
        }
        self.merged.windows += part.windows;
        self.merged.summaries.extend_from_slice(&part.summaries);
        self.merged.spans.merge(&part.spans);
        self.samples += part.data.sample_count();
        self.batch.push(part);
        if self.batch.len() == MERGE_BATCH {
            self.merge();
        }
    }

    fn merge(&mut self) {
        let merged = &self.merged.data;
        self.merged.data = query::merge(std::iter::once(merged).chain(self.batch.iter().map(|part| &part.data)));
        self.samples = self.merged.data.sample_count();
        self.batch.clear();
    }

    fn end(mut self) -> Part {
        if !self.batch.is_empty() {
            self.merge();
        }
        self.merged
    }
}

/// What of one window passes.
fn passing(filter: &Filter, detail: Detail, data: &ProfilesData) -> Part {
    let mut data = filter.apply(data);
    let mut spans = Spans::default();
    spans.add(&data);
    let (summaries, windows) = (query::types(&data), usize::from(data.sample_count() > 0));
    detail.reduce(&mut data);
    Part { data, summaries, spans, windows }
}

/// A decoded window's memory, near enough to bound a cache.
pub(crate) fn memory_bytes(data: &ProfilesData) -> usize {
    data.dictionary.memory_bytes() + data.sample_count() * (std::mem::size_of::<spanprof_profile::Sample>() + 32)
}

fn read_window(path: &Path, limits: &DecodeLimits) -> Result<ProfilesData, String> {
    let bytes = directory::read(path).map_err(|error| error.to_string())?;
    decode::any(&bytes, limits).map(|(_, data)| data).map_err(|error| error.to_string())
}

/// A lock whose holder panicked still guards whole values: every change under it is a push, a removal or a swap.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

pub(crate) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Compresses at the fastest level: windows are written more often than read.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 3 + 64);
    let mut encoder = flate2::read::GzEncoder::new(bytes, flate2::Compression::fast());
    // Reading from memory into memory does not fail.
    let _ = encoder.read_to_end(&mut out);
    out
}
