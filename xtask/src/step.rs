//! One step of a verb: a child process whose output is streamed while it runs, and whose failure names the step.
//! Called by every verb. No step is retried.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::deadline::{self, Deadline};
use crate::progress::{self, ProgressLine};

/// What every part of xtask answers.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a verb stopped: the step, what happened, and the way out where there is one.
#[derive(Debug)]
pub struct Failure {
    step: String,
    message: String,
    way_out: Option<String>,
}

impl Failure {
    /// A failure of `step`.
    pub fn new(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self { step: step.into(), message: message.into(), way_out: None }
    }

    /// Adds the command or action that mends it.
    pub fn with_way_out(mut self, way_out: impl Into<String>) -> Self {
        self.way_out = Some(way_out.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "step `{}`: {}", self.step, self.message)?;
        match &self.way_out {
            Some(way_out) => write!(out, "\n  way out: {way_out}"),
            None => Ok(()),
        }
    }
}

/// A child process to run.
pub struct Step {
    name: String,
    command: Command,
    way_out: Option<String>,
    limit: Duration,
}

/// What a step may take when it says nothing else; a cold release build is the longest that is meant to end.
const LIMIT: Duration = Duration::from_secs(60 * 60);

impl Step {
    /// A step called `name` that runs `program`.
    pub fn new(name: impl Into<String>, program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(crate::workspace::root()).stdin(Stdio::null());
        // What cargo says of xtask itself. Build scripts watch these (`ring`): a build from here and one by hand, or by a tool
        // that removes them, would each start again from there.
        let of_xtask = |key: &OsStr| {
            key.to_str().is_some_and(|key| key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_"))
        };
        std::env::vars_os().map(|(key, _)| key).filter(|key| of_xtask(key)).for_each(|key| {
            command.env_remove(key);
        });
        Self { name: name.into(), command, way_out: None, limit: LIMIT }
    }

    /// Cargo, as the one that runs us. The toolchain that rustup names in the environment stays in force: without it a
    /// dependency's own `rust-toolchain.toml` would choose the compiler.
    pub fn cargo(name: impl Into<String>) -> Self {
        Self::new(name, crate::workspace::cargo())
    }

    /// The nightly toolchain's cargo, by rustup's cargo: no other one knows `+nightly`.
    pub fn nightly_cargo(name: impl Into<String>) -> Self {
        Self::new(name, "cargo").arg("+nightly").missing_means("this needs rustup's cargo: https://rustup.rs")
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

    /// Runs in another folder than the workspace's root.
    pub fn inside(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// What to do when the program itself is missing.
    pub fn missing_means(mut self, way_out: impl Into<String>) -> Self {
        self.way_out = Some(way_out.into());
        self
    }

    /// Ends it, and all that it started, when it takes longer (default 1 h); the step has failed then.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs to its end, output going straight to ours, or to the log of [`progress::into_log`].
    pub fn run(mut self) -> Outcome {
        if let Some(log) = progress::log() {
            return self.run_into(&log);
        }
        self.announce();
        let mark = deadline::mark(&mut self.command);
        let child = self.command.spawn();
        let mut child = child.map_err(|error| self.not_started(&error))?;
        let deadline = Deadline::watch(child.id(), mark, self.limit);
        let status = child.wait().map_err(|error| self.not_started(&error))?;
        self.judge_in_time(status, deadline)
    }

    fn run_into(mut self, log: &Path) -> Outcome {
        let files = progress::opened(log, &self.name).and_then(|file| Ok((file.try_clone()?, file)));
        let (output, errors) =
            files.map_err(|error| Failure::new(&self.name, format!("cannot write {}: {error}", log.display())))?;
        let line = ProgressLine::begin(&self.name);
        let mark = deadline::mark(&mut self.command);
        let child = self.command.stdout(output).stderr(errors).spawn();
        let mut child = child.map_err(|error| self.not_started(&error))?;
        let deadline = Deadline::watch(child.id(), mark, self.limit);
        let status = loop {
            match child.try_wait().map_err(|error| self.not_started(&error))? {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(100)),
            }
            line.advance();
        };
        line.end();
        self.judge_in_time(status, deadline).map_err(|mut failure| {
            failure.message += &format!("; its last lines:\n{}", progress::end_of(log));
            failure
        })
    }

    /// Runs to its end and returns standard output, which is not shown; standard error is.
    pub fn capture(mut self) -> Outcome<String> {
        let output = self.command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| self.not_started(&error))?;
        self.judge(output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Like [`Step::capture`], whatever the exit code; both streams, nothing shown.
    pub fn capture_any(mut self) -> Outcome<(ExitStatus, String)> {
        let output = self.command.output().map_err(|error| self.not_started(&error))?;
        let both = [output.stdout, output.stderr].concat();
        Ok((output.status, String::from_utf8_lossy(&both).into_owned()))
    }

    /// Streams standard output and hands each of its lines to `line`. The caller judges the lines even when this fails.
    pub fn run_reading(mut self, mut line: impl FnMut(&str)) -> Outcome {
        self.announce();
        let mark = deadline::mark(&mut self.command);
        let child = self.command.stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| self.not_started(&error))?;
        let deadline = Deadline::watch(child.id(), mark, self.limit);
        if let Some(stdout) = child.stdout.take() {
            read_lines(stdout, |text| {
                println!("{text}");
                line(text);
            });
        }
        let status = child.wait().map_err(|error| self.not_started(&error))?;
        self.judge_in_time(status, deadline)
    }

    /// Starts it and returns; it is ended when the value is dropped. Its output goes to `log`.
    pub fn start(mut self, log: &Path) -> Outcome<Running> {
        let file = std::fs::File::create(log)
            .and_then(|file| Ok((file.try_clone()?, file)))
            .map_err(|error| Failure::new(&self.name, format!("cannot write {}: {error}", log.display())))?;
        self.command.stdout(file.0).stderr(file.1);
        let child = self.command.spawn().map_err(|error| self.not_started(&error))?;
        Ok(Running { name: self.name, child, log: log.to_owned() })
    }

    fn announce(&self) {
        println!("── {}", self.name);
    }

    fn not_started(&self, error: &std::io::Error) -> Failure {
        let program = self.command.get_program().to_string_lossy();
        let failure = Failure::new(&self.name, format!("cannot run `{program}`: {error}"));
        match &self.way_out {
            Some(way_out) => failure.with_way_out(way_out),
            None => failure,
        }
    }

    fn judge_in_time(&self, status: ExitStatus, deadline: Deadline) -> Outcome {
        if deadline.was_missed() {
            let message = format!("was ended: it had not come to its end after {} s", self.limit.as_secs());
            return Err(Failure::new(&self.name, message).with_way_out("its last lines above name what it was doing"));
        }
        self.judge(status)
    }

    fn judge(&self, status: ExitStatus) -> Outcome {
        if status.success() {
            return Ok(());
        }
        let words: Vec<_> = self.command.get_args().map(OsStr::to_string_lossy).collect();
        let program = self.command.get_program().to_string_lossy();
        Err(Failure::new(&self.name, format!("`{program} {}` ended with {status}", words.join(" "))))
    }
}

fn read_lines(from: impl Read, mut line: impl FnMut(&str)) {
    let mut reader = BufReader::new(from);
    let mut bytes = Vec::new();
    while matches!(reader.read_until(b'\n', &mut bytes), Ok(read) if read > 0) {
        line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
}

/// A started process. Dropping it asks it to end (SIGTERM), and ends it (SIGKILL) when it does not within 5 s.
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

    /// What it has written so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until `ready` gives a value; fails when the process ends or the time is over, with the end of its log.
    pub fn wait_until<T>(&mut self, within: Duration, mut ready: impl FnMut(&str) -> Option<T>) -> Outcome<T> {
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
                return Err(Failure::new(&self.name, format!("{happened}; its last words:\n{}", self.last_words())));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Its exit status, if it has ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
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
        let said = Step::new("always fails", "false").arg("--now").run().unwrap_err().to_string();
        assert!(said.contains("`always fails`") && said.contains("`false --now`"), "{said}");
    }

    #[test]
    fn a_missing_program_is_answered_with_the_command_that_installs_it() {
        let step = Step::new("zig", "no-such-program-anywhere").missing_means("pip install ziglang");
        let said = step.run().unwrap_err().to_string();
        assert!(said.contains("no-such-program-anywhere") && said.contains("pip install ziglang"), "{said}");
    }

    #[test]
    fn lines_are_handed_over_even_when_the_child_fails() {
        let mut lines = Vec::new();
        let outcome = Step::new("talks", "sh").args(["-c", "echo one; echo two; exit 3"]).run_reading(|line| {
            lines.push(line.to_owned());
        });
        assert!(outcome.is_err());
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_step_beyond_its_limit_fails_and_says_so() {
        let step = || Step::new("hangs", "sleep").arg("62").within(Duration::from_millis(200));
        for outcome in [step().run(), step().run_reading(|_| {})] {
            let said = outcome.unwrap_err().to_string();
            assert!(said.contains("`hangs`") && said.contains("was ended"), "{said}");
        }
    }

    #[test]
    fn a_started_process_ends_when_it_is_dropped() {
        let log = std::env::temp_dir().join(format!("xtask-step-{}", std::process::id()));
        let running = Step::new("sleeps", "sleep").arg("60").start(&log).unwrap();
        let id = running.id();
        drop(running);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        let _ = std::fs::remove_file(log);
    }

    #[test]
    fn a_process_that_ends_before_it_is_ready_shows_its_last_words() {
        let log = std::env::temp_dir().join(format!("xtask-words-{}", std::process::id()));
        let mut running = Step::new("dies", "sh").args(["-c", "echo port taken; exit 2"]).start(&log).unwrap();
        let said = running.wait_until(Duration::from_secs(5), |_| None::<()>).unwrap_err().to_string();
        assert!(said.contains("port taken") && said.contains("exit status: 2"), "{said}");
        let _ = std::fs::remove_file(log);
    }
}
