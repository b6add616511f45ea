//! One step of a verb: a child process with streamed output; a failure names the step. Called by every verb. No step is
//! retried here.

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::deadline::{self, Deadline};
use crate::progress;

/// Result of every fallible function of xtask.
pub type StepResult<T = ()> = Result<T, StepFailure>;

/// Error of a verb: the step, a message, and a hint where there is one.
#[derive(Debug)]
pub struct StepFailure {
    step: String,
    message: String,
    hint: Option<String>,
}

impl StepFailure {
    /// A failure of `step`.
    pub fn new(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self { step: step.into(), message: message.into(), hint: None }
    }

    /// Adds the names of the tests that failed in the step.
    pub fn with_failed_tests(mut self, tests: &[String]) -> Self {
        tests.iter().for_each(|test| self.message += &format!("\n  failed: {test}"));
        self
    }

    /// Adds the command or action that resolves it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for StepFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "step `{}`: {}", self.step, self.message)?;
        match &self.hint {
            Some(hint) => write!(out, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// The first file of this name in a directory of PATH.
pub fn on_path(program: &Path) -> Option<PathBuf> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// Fails with the names of the parts of `step` that failed, where each error was already printed.
pub fn all_passed(step: &str, failed: &[impl Borrow<str>]) -> StepResult {
    if failed.is_empty() {
        Ok(())
    } else {
        Err(StepFailure::new(step, format!("failed: {}", failed.join("; "))))
    }
}

/// Fails with a hint when the nightly toolchain lacks a tool.
pub fn nightly_with(tool: &str, install: &str) -> StepResult {
    let is_installed = Command::new("cargo")
        .args(["+nightly", tool, "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if is_installed {
        return Ok(());
    }
    Err(StepFailure::new(format!("find nightly cargo {tool}"), "this check needs it, and it is not installed")
        .with_hint(install))
}

/// A child process to run.
pub struct ProcessStep {
    name: String,
    command: Command,
    hint: Option<String>,
    limit: Duration,
}

/// The script of [`ProcessStep::in_root`]: its arguments are the root, the work tree, the program and its arguments.
pub const IN_ROOT: &str = "xtask/live/in-root.sh";

/// Default time limit of a step; the longest one is a cold release build.
const LIMIT: Duration = Duration::from_secs(60 * 60);

impl ProcessStep {
    /// A step called `name` that runs `program`.
    pub fn new(name: impl Into<String>, program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(crate::workspace::root()).stdin(Stdio::null());
        // Removes cargo's variables for xtask. Build scripts depend on them (`ring`): builds with and without them would
        // invalidate each other's results.
        let is_of_xtask = |key: &OsStr| {
            key.to_str().is_some_and(|key| key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_"))
        };
        std::env::vars_os().map(|(key, _)| key).filter(|key| is_of_xtask(key)).for_each(|key| {
            command.env_remove(key);
        });
        Self { name: name.into(), command, hint: None, limit: LIMIT }
    }

    /// A step that runs a program of another root directory in it, where the work tree and /tmp have the same paths; of this machine without
    /// a root.
    pub fn in_root(name: impl Into<String>, root: Option<&Path>, program: impl AsRef<OsStr>) -> Self {
        match root {
            None => Self::new(name, program),
            Some(root) => {
                let tree = crate::workspace::root();
                Self::new(name, "sh").arg(tree.join(IN_ROOT)).arg(root).arg(&tree).arg(program)
            }
        }
    }

    /// The cargo that runs xtask. rustup's toolchain variable is kept: without it, a dependency's `rust-toolchain.toml` would
    /// select the compiler.
    pub fn cargo(name: impl Into<String>) -> Self {
        Self::new(name, crate::workspace::cargo())
    }

    /// The cargo of the nightly toolchain, through rustup's cargo, which supports `+nightly`.
    pub fn nightly_cargo(name: impl Into<String>) -> Self {
        Self::new(name, "cargo").arg("+nightly").install_hint("this needs rustup's cargo: https://rustup.rs")
    }

    /// Appends arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.command.args(words);
        self
    }

    /// Appends one argument.
    pub fn arg(self, word: impl AsRef<OsStr>) -> Self {
        self.args([word])
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Turns the overhead budget of the profiler off, for measurements at high rates and for stress.
    pub fn without_cpu_budget(self) -> Self {
        self.env("SPANPROF_CPU_BUDGET", "0")
    }

    /// Runs in a directory other than the workspace's root.
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Hint for a missing program.
    pub fn install_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the time limit (default 1 h); beyond it the process and its descendants are killed, and the step fails.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs to completion with inherited output, or with output to the log of [`progress::into_log`].
    pub fn run(mut self) -> StepResult {
        if let Some(log) = progress::log() {
            return self.run_into(&log);
        }
        if progress::has_label() {
            return self.run_with_lines(|_| {});
        }
        self.announce();
        let (mut child, deadline) = self.spawn()?;
        let status = child.wait().map_err(|error| self.not_started(&error))?;
        self.check_status_in_time(status, deadline)
    }

    fn run_into(mut self, log: &Path) -> StepResult {
        let files = progress::opened(log, &self.name).and_then(|file| Ok((file.try_clone()?, file)));
        let (output, errors) =
            files.map_err(|error| StepFailure::new(&self.name, format!("cannot write {}: {error}", log.display())))?;
        self.command.stdout(output).stderr(errors);
        self.announce();
        let begun = Instant::now();
        let (mut child, deadline) = self.spawn()?;
        let status = child.wait().map_err(|error| self.not_started(&error))?;
        progress::print(&format!("{:>4} s  {}", begun.elapsed().as_secs(), self.name));
        self.check_status_in_time(status, deadline).map_err(|mut failure| {
            failure.message += &format!("; its last lines:\n{}", progress::end_of(log));
            failure
        })
    }

    /// Runs to completion and returns standard output; standard error is inherited.
    pub fn capture(mut self) -> StepResult<String> {
        let output = self.command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| self.not_started(&error))?;
        self.check_status(output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Like [`ProcessStep::capture`] for both streams and every exit code.
    pub fn capture_any(mut self) -> StepResult<(ExitStatus, String)> {
        let output = self.command.output().map_err(|error| self.not_started(&error))?;
        let both = [output.stdout, output.stderr].concat();
        Ok((output.status, String::from_utf8_lossy(&both).into_owned()))
    }

    /// Streams standard output and passes each line to `line`, also when the step fails.
    pub fn run_with_lines(mut self, mut line: impl FnMut(&str)) -> StepResult {
        self.announce();
        self.command.stdout(Stdio::piped());
        let (mut child, deadline) = self.spawn()?;
        if let Some(stdout) = child.stdout.take() {
            read_lines(stdout, |text| {
                progress::print(text);
                line(text);
            });
        }
        let status = child.wait().map_err(|error| self.not_started(&error))?;
        self.check_status_in_time(status, deadline)
    }

    /// Starts the process with output to `log`; dropping the value terminates it, and so does the end of xtask.
    pub fn start(self, log: &Path) -> StepResult<Running> {
        let file = std::fs::File::create(log)
            .and_then(|file| Ok((file.try_clone()?, file)))
            .map_err(|error| StepFailure::new(&self.name, format!("cannot write {}: {error}", log.display())))?;
        let mut command = ending_with_xtask(&self.command);
        command.stdin(Stdio::null()).stdout(file.0).stderr(file.1);
        let child = command.spawn().map_err(|error| self.not_started(&error))?;
        Ok(Running { name: self.name, child, log: log.to_owned() })
    }

    fn spawn(&mut self) -> StepResult<(Child, Deadline)> {
        let mark = deadline::mark(&mut self.command);
        let child = self.command.spawn().map_err(|error| self.not_started(&error))?;
        let deadline = Deadline::watch(child.id(), mark, self.limit);
        Ok((child, deadline))
    }

    fn announce(&self) {
        progress::print(&format!("── {}", self.name));
    }

    fn not_started(&self, error: &std::io::Error) -> StepFailure {
        let program = self.command.get_program().to_string_lossy();
        let failure = StepFailure::new(&self.name, format!("cannot run `{program}`: {error}"));
        match &self.hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }

    fn check_status_in_time(&self, status: ExitStatus, deadline: Deadline) -> StepResult {
        if deadline.was_missed() {
            let message = format!("was killed after its limit of {} s", self.limit.as_secs());
            return Err(StepFailure::new(&self.name, message).with_hint("its last lines above show what it was doing"));
        }
        self.check_status(status)
    }

    fn check_status(&self, status: ExitStatus) -> StepResult {
        if status.success() {
            return Ok(());
        }
        let words: Vec<_> = self.command.get_args().map(OsStr::to_string_lossy).collect();
        let program = self.command.get_program().to_string_lossy();
        Err(StepFailure::new(&self.name, format!("`{program} {}` ended with {status}", words.join(" "))))
    }
}

/// The same command, to which the kernel sends SIGTERM when xtask ends, also by a signal. Done by setpriv(1); where it is
/// missing, an interrupted xtask leaves the process.
fn ending_with_xtask(command: &Command) -> Command {
    let mut ending = match Command::new("setpriv").arg("--version").output() {
        Ok(_) => {
            let mut setpriv = Command::new("setpriv");
            setpriv.args(["--pdeathsig", "TERM", "--"]).arg(command.get_program());
            setpriv
        }
        Err(_) => Command::new(command.get_program()),
    };
    ending.args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => ending.env(key, value),
            None => ending.env_remove(key),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        ending.current_dir(directory);
    }
    ending
}

fn read_lines(from: impl Read, mut line: impl FnMut(&str)) {
    let mut reader = BufReader::new(from);
    let mut bytes = Vec::new();
    while matches!(reader.read_until(b'\n', &mut bytes), Ok(read) if read > 0) {
        line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
}

/// A started process. Dropping it sends SIGTERM, and SIGKILL after 5 s.
pub struct Running {
    name: String,
    child: Child,
    log: std::path::PathBuf,
}

impl Running {
    /// Process id.
    #[cfg(test)]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until `ready` returns a value; fails with the end of the log when the process ends or the time has passed.
    pub fn wait_until<T>(&mut self, within: Duration, mut ready: impl FnMut(&str) -> Option<T>) -> StepResult<T> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(value) = ready(&self.log()) {
                return Ok(value);
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > deadline {
                let happened = match ended {
                    Some(status) => format!("ended with {status}"),
                    None => format!("was not ready within {} s", within.as_secs()),
                };
                return Err(StepFailure::new(
                    &self.name,
                    format!("{happened}; its last lines:\n{}", progress::end_of(&self.log)),
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn end(&mut self) -> Option<ExitStatus> {
        if let Some(status) = self.ended() {
            return Some(status);
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_child_names_the_step_and_the_command() {
        let message = ProcessStep::new("always fails", "false").arg("--now").run().unwrap_err().to_string();
        assert!(message.contains("`always fails`") && message.contains("`false --now`"), "{message}");
    }

    #[test]
    fn a_missing_program_has_a_hint_to_install_it() {
        let step = ProcessStep::new("zig", "no-such-program-anywhere").install_hint("pip install ziglang");
        let message = step.run().unwrap_err().to_string();
        assert!(message.contains("no-such-program-anywhere") && message.contains("pip install ziglang"), "{message}");
    }

    #[test]
    fn lines_are_passed_on_when_the_child_fails() {
        let mut lines = Vec::new();
        let outcome =
            ProcessStep::new("prints", "sh").args(["-c", "echo one; echo two; exit 3"]).run_with_lines(|line| {
                lines.push(line.to_owned());
            });
        assert!(outcome.is_err());
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_step_beyond_its_limit_fails_with_the_reason() {
        let step = || ProcessStep::new("hangs", "sleep").arg("62").time_limit(Duration::from_millis(200));
        for outcome in [step().run(), step().run_with_lines(|_| {})] {
            let message = outcome.unwrap_err().to_string();
            assert!(message.contains("`hangs`") && message.contains("was killed"), "{message}");
        }
    }

    #[test]
    fn a_started_process_ends_when_it_is_dropped() {
        let log = std::env::temp_dir().join(format!("xtask-step-{}", std::process::id()));
        let running = ProcessStep::new("sleeps", "sleep").arg("60").start(&log).unwrap();
        let id = running.id();
        drop(running);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        let _ = std::fs::remove_file(log);
    }

    const LOG: &str = "XTASK_TEST_LOG";

    #[test]
    fn a_started_process_ends_when_its_parent_is_killed() {
        if let Some(log) = std::env::var_os(LOG) {
            // This is the parent.
            let step = ProcessStep::new("sleeps", "sh").args(["-c", "echo $$; exec sleep 600"]);
            let mut running = step.start(Path::new(&log)).unwrap();
            running.wait_until(Duration::from_secs(600), |_| None::<()>).unwrap();
        }
        let log = std::env::temp_dir().join(format!("xtask-parent-{}", std::process::id()));
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "step::tests::a_started_process_ends_when_its_parent_is_killed"])
            .env(LOG, &log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let eventually = |condition: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !condition() && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(10));
            }
            condition()
        };
        let id = || std::fs::read_to_string(&log).ok()?.strip_suffix('\n')?.parse::<u32>().ok();
        assert!(eventually(&|| id().is_some()), "it prints its id");
        let status = format!("/proc/{}/status", id().unwrap());
        assert!(Path::new(&status).exists());
        parent.kill().unwrap();
        parent.wait().unwrap();
        // In a container whose first process does not wait for orphans, it remains as a zombie.
        let ended = || std::fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"));
        assert!(eventually(&ended), "it runs without its parent");
        let _ = std::fs::remove_file(log);
    }

    #[test]
    fn a_process_that_ends_before_it_is_ready_shows_its_last_lines() {
        let log = std::env::temp_dir().join(format!("xtask-lines-{}", std::process::id()));
        let mut running = ProcessStep::new("dies", "sh").args(["-c", "echo port taken; exit 2"]).start(&log).unwrap();
        let message = running.wait_until(Duration::from_secs(5), |_| None::<()>).unwrap_err().to_string();
        assert!(message.contains("port taken") && message.contains("exit status: 2"), "{message}");
        let _ = std::fs::remove_file(log);
    }
}
