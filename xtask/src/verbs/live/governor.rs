//! The overhead budget in a cgroup of 0.1 CPU: programs in Python and Java with 400 blocked threads, idle, then a burst in which
//! the kernel throttles the program. The profiler's CPU time is at most 1 % of the quota, the rate is at least 10 Hz, and the
//! burst's function has its CPU time. Optimized packages, since the cost of unoptimized code proves nothing. Requires the right
//! to create a cgroup.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::arguments::LiveArguments;
use crate::languages::{java, python, Packages};
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};
use crate::verbs::demo;
use crate::{scratch, workspace};

/// Quota of the group, processors.
const QUOTA: f64 = 0.1;
/// The default of `cpu_budget`.
const BUDGET: f64 = 0.01;
/// Duration of a period of the quota.
const PERIOD: Duration = Duration::from_millis(100);
/// Least part of the burst's periods in which the group was throttled. Its four threads need forty times the quota.
const MIN_THROTTLED: f64 = 0.8;
/// The governor does not lower the rate below this, Hz.
const MIN_RATE_HZ: f64 = 10.0;
/// Windows of 10 s without load, and of the burst.
const WINDOWS: [usize; 2] = [3, 2];
/// Least part of the burst's CPU time with the function on the stack. The rest is the runtime's own work.
const MIN_ATTRIBUTED: f64 = 0.8;
const LIMIT: Duration = Duration::from_secs(600);

/// A program of one language; the caller appends the arguments.
struct GovernedProgram {
    language: &'static str,
    words: Vec<PathBuf>,
    function: &'static str,
}

/// A control group with the quota, removed on drop.
struct QuotaGroup(PathBuf);

/// Measurements of 10 s.
struct MeasuredWindow {
    elapsed_ns: f64,
    cost_ns: f64,
    process_ns: f64,
    sample_rate_hz: f64,
}

pub fn run(_: &LiveArguments) -> StepResult {
    let group = match QuotaGroup::create() {
        Ok(group) => group,
        Err(reason) => {
            println!("live governor: NOT RUN: {reason}");
            return Ok(());
        }
    };
    demo::build_command_line(Packages::Optimized)?;
    let directory = scratch::empty("live-governor")?;
    let mut failed = Vec::new();
    for program in [python, java] {
        let program = program()?;
        if let Err(failure) = program.check(&group, &directory.join(program.language)) {
            eprintln!("{failure}");
            failed.push(program.language);
        }
    }
    all_passed("live governor", &failed)
}

impl QuotaGroup {
    /// In the version 1 hierarchy, or in version 2 where the controller is enabled.
    fn create() -> Result<Self, String> {
        let mount = Path::new("/sys/fs/cgroup");
        let v1 = ["cpu", "cpu,cpuacct"]
            .map(|name| mount.join(name))
            .into_iter()
            .find(|path| path.join("cpu.shares").exists());
        let name = format!("spanprof-live-{}", std::process::id());
        let path = v1.as_deref().unwrap_or(mount).join(name);
        let period_us = PERIOD.as_micros();
        let quota_us = (QUOTA * period_us as f64) as u32;
        let (file, text) = match v1 {
            Some(_) => ("cpu.cfs_quota_us", quota_us.to_string()),
            None => ("cpu.max", format!("{quota_us} {period_us}")),
        };
        let because = |error: std::io::Error| format!("no cgroup with a CPU quota at {}: {error}", path.display());
        std::fs::create_dir(&path).map_err(because)?;
        let group = Self(path.clone());
        std::fs::write(path.join(file), text).map_err(because)?;
        Ok(group)
    }

    /// Number of periods so far in which the kernel throttled the group.
    fn throttled_periods(&self) -> StepResult<f64> {
        let path = self.0.join("cpu.stat");
        let text = scratch::read(&path)?;
        let value = text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok());
        value.ok_or_else(|| StepFailure::new("live governor", format!("no nr_throttled in {}", path.display())))
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // Fails while a process is inside; it was killed with its step then.
        if let Err(error) = std::fs::remove_dir(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

impl GovernedProgram {
    fn check(&self, group: &QuotaGroup, directory: &Path) -> StepResult {
        let [idle, burst] = WINDOWS;
        let step = ProcessStep::new(format!("400 threads in {} with {QUOTA} CPU", self.language), "sh")
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(group.0.join("cgroup.procs"))
            .args(&self.words)
            .arg(directory)
            .args([idle.to_string(), burst.to_string()])
            .time_limit(LIMIT);
        let mut windows = Vec::new();
        let throttled_before = group.throttled_periods()?;
        step.run_with_lines(|line| windows.extend(MeasuredWindow::read(line)))?;
        let throttled = group.throttled_periods()? - throttled_before;
        let [in_idle, in_burst] = [windows.get(..idle), windows.get(idle..idle + burst)].map(Option::unwrap_or_default);
        if windows.len() != idle + burst + 1 {
            return Err(StepFailure::new("live governor", format!("{} windows in the output", windows.len())));
        }
        let share = |window: &MeasuredWindow| window.cost_ns / (window.elapsed_ns * QUOTA);
        let shown: Vec<_> = windows.iter().map(|window| format!("{:.2} %", 100.0 * share(window))).collect();
        let used_ns: f64 = in_burst.iter().map(|window| window.process_ns - window.cost_ns).sum();
        let attributed = self.attributed_ns(directory)? / used_ns;
        println!(
            "{}: of the quota: {}; in {}: {:.1} %; throttled in {throttled} periods",
            self.language,
            shown.join(", "),
            self.function,
            100.0 * attributed
        );
        let burst_periods = in_burst.iter().map(|window| window.elapsed_ns).sum::<f64>() / PERIOD.as_nanos() as f64;
        if throttled < MIN_THROTTLED * burst_periods {
            return Err(StepFailure::new("live governor", format!("{throttled} of {burst_periods} periods throttled")));
        }
        if let Some(window) = windows.iter().find(|window| window.sample_rate_hz < MIN_RATE_HZ) {
            return Err(StepFailure::new("live governor", format!("a rate of {} Hz", window.sample_rate_hz)));
        }
        let above = windows.iter().filter(|window| share(window) > BUDGET).count();
        let is_idle_above = in_idle.iter().any(|window| share(window) > BUDGET);
        match (above, is_idle_above, attributed >= MIN_ATTRIBUTED) {
            (0 | 1, false, true) => Ok(()),
            (0 | 1, false, false) => {
                Err(StepFailure::new("live governor", "the burst is not attributed to its function"))
            }
            _ => Err(StepFailure::new(
                "live governor",
                format!("{above} windows above {:.0} % of the quota", 100.0 * BUDGET),
            )),
        }
    }

    fn attributed_ns(&self, directory: &Path) -> StepResult<f64> {
        let text = ProcessStep::new("read the profiles", workspace::target().join("optimized/spanprof"))
            .arg("top")
            .arg(directory)
            .args(["--type", "cpu", "--limit", "0", "--json"])
            .capture()?;
        let table: serde_json::Value =
            serde_json::from_str(&text).map_err(|_| StepFailure::new("read the profiles", text.clone()))?;
        let rows = table["rows"].as_array().into_iter().flatten();
        let rows = rows.filter(|row| row["function"].as_str().is_some_and(|name| name.contains(self.function)));
        Ok(rows.filter_map(|row| row["cum"].as_f64()).fold(0.0, f64::max))
    }
}

impl MeasuredWindow {
    /// Reads a line of a program.
    fn read(line: &str) -> Option<Self> {
        let mut numbers = line.strip_prefix("window ")?.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { elapsed_ns: next()?, cost_ns: next()?, process_ns: next()?, sample_rate_hz: next()? })
    }
}

fn source(name: &str) -> PathBuf {
    workspace::root().join("xtask/live/governor").join(name)
}

fn python() -> StepResult<GovernedProgram> {
    let venv = python::Venv::with("live-governor", &python::runtimes::preferred()?, &[])?;
    venv.install_wheel(&python::package::pack_for_demo()?)?;
    let words = vec![venv.python(), source("governor.py")];
    Ok(GovernedProgram { language: "python", words, function: "hot_function" })
}

fn java() -> StepResult<GovernedProgram> {
    let words = java::live::command_of(
        &source("GovernedThreads.java"),
        &java::package::pack_for_demo()?,
        "live-governor-java",
    )?;
    Ok(GovernedProgram { language: "java", words, function: "hotFunction" })
}
