//! `spanprof heap`: the live objects that a killed process left behind in its `heap_peak_directory`.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{fcntl_lock, FlockOperation};
use rustix::io::Errno;
use serde_json::{Map, Value};
use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::format_quantity;
use spanprof_answers::selection::moment;
use spanprof_answers::{top, TerminalLayout};
use spanprof_profile::encode::pprof;
use spanprof_profile::heap_peak::{self, PeakContent, PeakProcess, PeakRecord};
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_read::query::{self, Granularity};

use super::table::row_limit;
use crate::output;

const TYPE: &str = "inuse_space";
/// Extensions of the files, of a process that runs or just ended, and of one that an earlier start found.
const EXTENSIONS: [&str; 2] = ["peak", "crash"];

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof heap --last-crash DIR|FILE [FLAGS]",
    before_help = "\
Shows the objects that were in use when their bytes had their last maximum, in the process that ended last without stop(): by
function and by line, with its resident memory and memory limit. The directory is the process's `heap_peak_directory`.",
    after_help = "\
Examples:
  spanprof heap --last-crash /var/lib/checkout/heap
  spanprof heap --last-crash /var/lib/checkout/heap -o heap.pb.gz"
)]
pub(crate) struct HeapArguments {
    /// the heap_peak_directory, or one file of it
    #[arg(long, value_name = "DIR|FILE", required = true)]
    pub last_crash: PathBuf,
    /// rows to print, 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "10", value_parser = row_limit)]
    pub limit: usize,
    /// as JSON
    #[arg(long)]
    pub json: bool,
    /// write the objects as pprof to a file, - for stdout, instead of printing them
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
}

/// A process that left its heap behind.
struct CrashedHeap {
    path: PathBuf,
    process: PeakProcess,
    record: PeakRecord<'static>,
}

pub(crate) fn run(arguments: &HeapArguments) -> Result<i32, Failure> {
    if let Some(path) = &arguments.output {
        output::refuse_on_terminal(path, "pprof", "-o heap.pb.gz")?;
    }
    let PeakFiles { mut crashed, others } = PeakFiles::of(&arguments.last_crash)?;
    crashed.sort_by_key(|crashed| crashed.record.time_unix_ns);
    let Some(last) = crashed.pop() else { return Err(none_crashed(&arguments.last_crash, &others)) };
    if let Some(older) = crashed.last() {
        let count = crashed.len();
        output::note(&format!("{count} older: the latest is {} (give it to --last-crash)", older.path.display()));
    }
    if !others.is_empty() {
        output::note(&format!("not shown: {}", joined(&others)));
    }
    let data = decode::pprof::decode(&last.record.profile, &DecodeLimits::default())
        .map_err(|error| Failure::new(format!("{}: {error}", last.path.display())))?;
    if let Some(path) = &arguments.output {
        output::write(path, &pprof::encode(&data))?;
        return Ok(0);
    }
    let text = if arguments.json {
        Value::Object(json(&last, &data, arguments.limit)).to_string() + "\n"
    } else {
        text(&last, &data, arguments.limit)
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The files of the argument.
#[derive(Default)]
struct PeakFiles {
    crashed: Vec<CrashedHeap>,
    /// The other files, each with the reason.
    others: Vec<String>,
}

impl PeakFiles {
    /// Reads a file, or the files of a directory. An unreadable file is an error only if it is the argument.
    fn of(path: &Path) -> Result<Self, Failure> {
        let unreadable = |reason: &dyn fmt::Display| Failure::new(format!("cannot read {}: {reason}", path.display()));
        let mut found = Self::default();
        if !path.is_dir() {
            found.add(path).map_err(|reason| unreadable(&reason))?;
            return Ok(found);
        }
        let entries = std::fs::read_dir(path).map_err(|error| unreadable(&error))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| EXTENSIONS.iter().any(|known| file.extension().is_some_and(|own| own == *known)));
        files.sort();
        for file in files {
            if let Err(reason) = found.add(&file) {
                found.others.push(format!("{}: {reason}", name(&file)));
            }
        }
        Ok(found)
    }

    fn add(&mut self, path: &Path) -> Result<(), String> {
        let is_of_running_process = is_of_running_process(path);
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let PeakContent { process, record } = heap_peak::decode(&bytes).map_err(|error| error.to_string())?;
        let other = |state| format!("{}: process {} {state}", name(path), process.process_id);
        match record {
            _ if is_of_running_process => self.others.push(other("still runs")),
            None => self.others.push(other("ended before its first record")),
            Some(record) => {
                let record = PeakRecord { profile: record.profile.into_owned().into(), ..record };
                self.crashed.push(CrashedHeap { path: path.to_owned(), process, record });
            }
        }
        Ok(())
    }
}

/// A running process holds a lock on its file. Where the file system has no locks, every process counts as ended.
fn is_of_running_process(path: &Path) -> bool {
    let locked = |file: File| fcntl_lock(&file, FlockOperation::NonBlockingLockShared);
    File::open(path).is_ok_and(|file| matches!(locked(file), Err(Errno::AGAIN | Errno::ACCESS)))
}

fn none_crashed(path: &Path, others: &[String]) -> Failure {
    let none = Failure::new(format!("no process left its heap in {}", path.display()));
    if others.is_empty() {
        return none
            .hint("a process does if it is killed while heap is on and heap_peak_directory names this directory");
    }
    none.hint(joined(others))
}

/// The first few sentences, and the number of the others.
fn joined(sentences: &[String]) -> String {
    const SHOWN: usize = 3;
    let (shown, more) = sentences.split_at(sentences.len().min(SHOWN));
    let more = if more.is_empty() { String::new() } else { format!("; and {} more", more.len()) };
    shown.join("; ") + &more
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn json(crashed: &CrashedHeap, data: &ProfilesData, limit: usize) -> Map<String, Value> {
    let CrashedHeap { path, process, record } = crashed;
    let table = |by| Value::Object(top::members(&query::top(data, TYPE, by), limit));
    Map::from_iter([
        ("file".to_owned(), path.to_string_lossy().into()),
        ("service".to_owned(), process.service_name.as_str().into()),
        ("process_id".to_owned(), process.process_id.into()),
        ("time".to_owned(), moment::format_rfc3339(record.time_unix_ns).into()),
        ("time_unix_ns".to_owned(), record.time_unix_ns.into()),
        ("live_bytes".to_owned(), record.live_bytes.into()),
        ("live_objects".to_owned(), record.live_objects.into()),
        ("resident_bytes".to_owned(), record.resident_bytes.into()),
        ("limit_bytes".to_owned(), record.limit_bytes.into()),
        ("omitted_stacks".to_owned(), record.omitted_stacks.into()),
        ("functions".to_owned(), table(Granularity::Function)),
        ("lines".to_owned(), table(Granularity::Line)),
    ])
}

fn text(crashed: &CrashedHeap, data: &ProfilesData, limit: usize) -> String {
    let CrashedHeap { process, record, .. } = crashed;
    let bytes = |count: u64| format_quantity(i64::try_from(count).unwrap_or(i64::MAX), "bytes");
    let memory_limit = record.limit_bytes.map_or("none".to_owned(), bytes);
    let mut text = format!(
        "process {} ({}), heap at its peak on {}\nin use {} in {} objects, resident {}, memory limit {memory_limit}\n",
        process.process_id,
        process.service_name.escape_debug(),
        moment::format_rfc3339(record.time_unix_ns),
        bytes(record.live_bytes),
        record.live_objects,
        bytes(record.resident_bytes),
    );
    if record.omitted_stacks > 0 {
        text += &format!("{} small stacks did not fit: [too_many_stacks]\n", record.omitted_stacks);
    }
    for by in [Granularity::Function, Granularity::Line] {
        text += "\n";
        let layout = TerminalLayout::of_stdout();
        text += &top::table_text(&query::top(data, TYPE, by), false, limit, layout);
    }
    text
}
