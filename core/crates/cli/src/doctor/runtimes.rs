//! Runtimes on PATH, by the version that each prints.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::directories::library_directory;
use super::DoctorCheck;

/// Most time for printing a version.
const DEADLINE: Duration = Duration::from_secs(20);

/// A runtime, the versions that can be profiled, and those that are tested with each change.
struct SupportedRuntime {
    check: &'static str,
    program: &'static str,
    argument: &'static str,
    oldest: [u32; 2],
    /// The last version that can be profiled; `None` if a self-test at the start decides.
    newest: Option<[u32; 2]>,
    expected: &'static str,
    install: &'static str,
}

const RUNTIMES: [SupportedRuntime; 3] = [
    SupportedRuntime {
        check: "python",
        program: "python3",
        argument: "--version",
        oldest: [3, 9],
        newest: Some([3, 15]),
        expected: "CPython 3.9 to 3.15",
        install: "run the program with CPython 3.9 to 3.15",
    },
    SupportedRuntime {
        check: "node",
        program: "node",
        argument: "--version",
        oldest: [18, 0],
        newest: None,
        expected: "Node.js 18 or later",
        install: "run the program with Node.js 18 or later",
    },
    SupportedRuntime {
        check: "java",
        program: "java",
        argument: "-version",
        oldest: [17, 0],
        newest: None,
        expected: "HotSpot of Java 17 or later",
        install: "run the program with a JDK of version 17 or later, for example Eclipse Temurin",
    },
];

pub(super) fn checks() -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    for runtime in &RUNTIMES {
        let check = check(runtime);
        let is_java = runtime.check == "java" && check.found.contains("version");
        checks.push(check);
        checks.extend(is_java.then(java_library));
    }
    checks
}

fn check(runtime: &SupportedRuntime) -> DoctorCheck {
    let text = match printed(runtime.program, runtime.argument) {
        Ok(Some(text)) => text,
        Ok(None) => {
            let found = format!("{} is not on PATH", runtime.program);
            return DoctorCheck::ok(runtime.check, found, "nothing to profile with it");
        }
        Err(reason) => {
            let action = format!("run `{} {}` and correct its error", runtime.program, runtime.argument);
            return DoctorCheck::limited(runtime.check, reason, "its version is unknown", action);
        }
    };
    let line = text.lines().next().unwrap_or_default().trim();
    let expected = format!("expected {}", runtime.expected);
    let Some(version) = version(&text) else {
        return DoctorCheck::limited(runtime.check, line, expected, runtime.install);
    };
    let is_hotspot = runtime.check != "java" || text.contains("OpenJDK") || text.contains("HotSpot");
    let is_supported = version >= runtime.oldest && runtime.newest.is_none_or(|newest| version <= newest);
    match is_supported && is_hotspot {
        true => DoctorCheck::ok(runtime.check, line, format!("supported: {}", runtime.expected)),
        false => DoctorCheck::limited(
            runtime.check,
            line,
            format!("its programs run without a profile: {expected}"),
            runtime.install,
        ),
    }
}

/// The first number of a text with the one after it: `Python 3.11.4`, `v22.1.0`, `openjdk version "17.0.9"`.
fn version(text: &str) -> Option<[u32; 2]> {
    let begin = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[begin..].split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next().and_then(|minor| minor.parse().ok()).unwrap_or(0);
    Some([major, minor])
}

/// The output of a program, which is ended after the deadline; `None` if there is no such program.
fn printed(program: &str, argument: &str) -> Result<Option<String>, String> {
    let started = Command::new(program)
        .arg(argument)
        // They would start the profiler, or add lines to the output.
        .env_remove("JAVA_TOOL_OPTIONS")
        .env_remove("JDK_JAVA_OPTIONS")
        .env_remove("NODE_OPTIONS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{program} cannot be started: {error}")),
    };
    let (sender, received) = mpsc::channel();
    let (mut out, mut error) = (child.stdout.take(), child.stderr.take());
    thread::spawn(move || {
        // A version is shorter than the buffer of a pipe, so neither stream blocks the other.
        let mut text = String::new();
        let _ = out.as_mut().map(|out| out.read_to_string(&mut text));
        let _ = error.as_mut().map(|error| error.read_to_string(&mut text));
        let _ = sender.send(text);
    });
    let text = received.recv_timeout(DEADLINE);
    if text.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("{program}: {error}"))?;
    match text {
        Err(_) => Err(format!("`{program} {argument}` printed nothing within {} s", DEADLINE.as_secs())),
        Ok(text) if !status.success() => {
            let first = text.lines().next().unwrap_or_default();
            Err(format!("`{program} {argument}` failed: {status}: {}", first.trim()))
        }
        Ok(text) => Ok(Some(text)),
    }
}

/// The JAR unpacks its library into the first of these directories that permits it.
fn java_library() -> DoctorCheck {
    const CHECK: &str = "java_library";
    let set = std::env::var_os("SPANPROF_LIBRARY_DIRECTORY").map(PathBuf::from);
    let directories: Vec<PathBuf> = set.into_iter().chain(["/tmp", "/dev/shm"].map(PathBuf::from)).collect();
    match library_directory(&directories) {
        Ok(directory) => DoctorCheck::ok(
            CHECK,
            format!("{} is writable and executable", directory.display()),
            "the JAR unpacks its native library there",
        ),
        Err(reasons) => DoctorCheck::limited(
            CHECK,
            reasons,
            "the JAR cannot load its native library, and Java programs run without a profile",
            "set SPANPROF_LIBRARY_DIRECTORY to a writable directory on a file system without noexec",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_each_runtime_prints() {
        assert_eq!(version("Python 3.11.4"), Some([3, 11]));
        assert_eq!(version("v22.1.0"), Some([22, 1]));
        assert_eq!(version("openjdk version \"17.0.9\" 2023-10-17\nOpenJDK Runtime"), Some([17, 0]));
        assert_eq!(version("openjdk version \"25\" 2025-09-16"), Some([25, 0]));
        assert_eq!(version("java version \"1.8.0_401\""), Some([1, 8]));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn the_supported_versions_are_those_that_the_packages_declare() {
        let [python, node, java] = &RUNTIMES;
        let declared = include_str!("../../../../../bindings-python/pyproject.toml");
        let [major, minor] = python.oldest;
        assert!(declared.contains(&format!("requires-python = \">={major}.{minor}\"")));
        let refusal = include_str!("../../../../../bindings-python/src/runtime/version.rs");
        assert!(refusal.contains(python.expected), "{}", python.expected);
        let package = include_str!("../../../../../bindings-node/package.json");
        assert!(package.contains(&format!("\"node\": \">={}\"", node.oldest[0])));
        let readme = include_str!("../../../../../README.md");
        let rows = [
            format!("| Python {major}.{minor}–"),
            format!("| Node.js {}–", node.oldest[0]),
            format!("| Java {}, ", java.oldest[0]),
            format!("| Rust {} or later |", env!("CARGO_PKG_RUST_VERSION")),
        ];
        for row in rows {
            assert!(readme.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_program_that_fails_or_is_absent_is_told_apart() {
        assert_eq!(printed("spanprof-absent-program", "--version"), Ok(None));
        assert!(printed("sh", "--spanprof-no-such-flag").unwrap_err().contains("failed"));
    }
}
