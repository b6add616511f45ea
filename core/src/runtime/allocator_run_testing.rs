//! Runs of the profiler over known allocations, for `allocator_tests`: the child process, the run, and its profiles.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use spanprof_config::{Config, ConfigPatch, ConfigValue, DestinationConfig, DestinationType};
use spanprof_profile::{ProfilesData, Value};
use spanprof_profiler::ProfilerHandle;
use spanprof_read::decode;

/// Runs `body` in a child process: this binary with `test` of `allocator_tests` as its only test.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    in_process_of_test(&format!("runtime::allocator_tests::{test}"), body);
}

/// As [`in_own_process`], for a test of any module.
pub fn in_process_of_test(test: &str, body: impl FnOnce()) {
    const IS_CHILD: &str = "SPANPROF_TEST_HEAP_CHILD";
    if std::env::var_os(IS_CHILD).is_some() {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test, "--nocapture"]).env(IS_CHILD, "1").output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    // Indented: whoever counts the outcomes of this process does not count those of the child.
    let shown = text.join("\n").replace('\n', "\n    ");
    assert!(output.status.success() && text[0].contains("1 passed"), "{:?}\n    {shown}", output.status);
}

/// A run of the profiler that writes files.
pub struct HeapRun {
    pub profiler: ProfilerHandle,
    directory: PathBuf,
    lost_before: u64,
}

#[inline(never)]
fn first_allocation() {
    drop(std::hint::black_box(vec![0u8; 64 << 20]));
}

/// Profiles of one kind, over the windows of a run.
pub struct HeapProfiles(Vec<ProfilesData>);

impl HeapRun {
    pub fn start(heap_interval: u64) -> Self {
        Self::start_with(Config { heap_interval, ..Config::default() })
    }

    pub fn start_with(config: Config) -> Self {
        let mut run = Self::start_as(Config { heap: true, ..config });
        // Loads the debug information, which takes seconds in a large program without optimization.
        first_allocation();
        run.wait_until_drained();
        run.lost_before = run.lost();
        run
    }

    /// Starts with the kinds of samples in `config`.
    pub fn start_as(config: Config) -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let name = format!("spanprof-heap-{}-{run}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut files = DestinationConfig::new(DestinationType::File);
        files.directory = Some(directory.to_string_lossy().into_owned());
        let config = Config {
            destinations: Some(vec![files]),
            cpu: false,
            // The interval stays as it is.
            cpu_budget: 0.0,
            stop_timeout: Duration::from_secs(60),
            // Windows end by request only.
            upload_interval: Duration::from_secs(3600),
            ..config
        };
        Self { profiler: crate::api::profiler::start_native(config).unwrap(), directory, lost_before: 0 }
    }

    /// Waits until the drain thread has processed all samples, of which the ring holds about two thousand.
    pub fn wait_until_drained(&self) {
        assert!(self.profiler.wait_until_drained(Duration::from_secs(60)));
    }

    /// Samples lost since the start.
    pub fn lost(&self) -> u64 {
        self.counter("dropped.heap_busy") + self.counter("dropped.heap_ring_full") - self.lost_before
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.profiler.stats().counter(name)
    }

    pub fn set(&self, key: &str, value: ConfigValue) {
        self.profiler.update(&ConfigPatch(vec![(key.to_owned(), value)])).unwrap();
    }

    /// Stops the profiler; returns the profiles of in-use objects and of allocations.
    pub fn stop(self) -> [HeapProfiles; 2] {
        self.stop_with(["heap-", "allocs-"])
    }

    /// Stops the profiler; returns the profiles whose files begin with these names.
    pub fn stop_with<const N: usize>(self, kinds: [&str; N]) -> [HeapProfiles; N] {
        assert!(self.profiler.stop());
        assert_eq!(spanprof_signal::guarded::faults(), 0, "no fault is part of normal operation");
        kinds.map(|kind| {
            let mut profiles = Vec::new();
            for file in std::fs::read_dir(&self.directory).unwrap() {
                let file = file.unwrap();
                let name = file.file_name().to_string_lossy().into_owned();
                if name.starts_with(kind) && name.ends_with(".pb.gz") {
                    let bytes = std::fs::read(file.path()).unwrap();
                    profiles.push(decode::any(&bytes, &decode::DecodeLimits::default()).unwrap().1);
                }
            }
            HeapProfiles(profiles)
        })
    }
}

impl Drop for HeapRun {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// One stack of a profile.
#[derive(Debug)]
pub struct HeapStack {
    /// Leaf first, inlined functions included.
    pub functions: Vec<String>,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl HeapProfiles {
    pub fn stacks(&self, type_name: &str) -> Vec<HeapStack> {
        let mut stacks = Vec::new();
        for data in &self.0 {
            let dictionary = &data.dictionary;
            let profiles = data.profiles().map(|(_, profile)| profile);
            for profile in profiles.filter(|profile| profile.type_name() == type_name) {
                for sample in &profile.samples {
                    let lines = dictionary.get_stack(sample.stack).iter();
                    let lines = lines.flat_map(|location| dictionary.get_location(*location).lines);
                    let name = |line: &spanprof_profile::Line| {
                        dictionary.get_string(dictionary.get_function(line.function).name).to_owned()
                    };
                    let labels = dictionary.attributes_of(sample.attributes);
                    let labels = labels.filter_map(|label| match label.value {
                        Value::String(value) => Some((label.key.to_owned(), value.to_owned())),
                        _ => None,
                    });
                    stacks.push(HeapStack {
                        functions: lines.map(name).collect(),
                        labels: labels.collect(),
                        value: profile.weight(sample) as f64,
                    });
                }
            }
        }
        stacks
    }

    /// Total of the stacks through a function of this file.
    pub fn total_through(&self, type_name: &str, function: &str) -> f64 {
        let stacks = self.stacks(type_name);
        stacks.iter().filter(|stack| stack.is_through(function)).map(|stack| stack.value).sum()
    }
}

impl HeapStack {
    pub fn is_through(&self, function: &str) -> bool {
        self.functions.iter().any(|name| name.split("::").any(|part| part == function))
    }
}
