//! `spanprof doctor` under real limits, filters and receivers.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::Value;
use spanprof_os::testing::refuse_call;
use spanprof_os::{CallRefusal, SystemCall};

use crate::fixture::{command, Finished, Serve, TestDirectory};

/// The command without the settings of the test's own environment.
fn doctor(arguments: &[&str]) -> Command {
    let mut doctor = command(&[&["doctor"], arguments].concat());
    let settings = std::env::vars_os().map(|(name, _)| name);
    let is_setting = |name: &str| ["SPANPROF_", "OTEL_", "PYROSCOPE_"].iter().any(|prefix| name.starts_with(prefix));
    for name in settings.filter(|name| is_setting(&name.to_string_lossy())) {
        doctor.env_remove(name);
    }
    doctor
}

fn finished(mut command: Command) -> Finished {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Finished { code: output.status.code().unwrap(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// The checks of a run with `--json`.
fn checks(finished: &Finished) -> Vec<Value> {
    let checks: Vec<Value> =
        serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    let problems = checks.iter().filter(|check| check["state"] == "problem").count();
    assert_eq!(finished.code, i32::from(problems > 0), "{finished:?}");
    checks
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no check {name} in {checks:?}"))
}

fn text<'a>(check: &'a Value, member: &str) -> &'a str {
    check[member].as_str().unwrap()
}

/// The program under limits of a shell.
fn doctor_under(limits: &str, arguments: &str) -> Finished {
    let script = format!("{limits} && exec \"$0\" doctor {arguments}");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_spanprof")]);
    finished(shell)
}

#[test]
fn every_check_has_a_state_and_a_value_and_an_action_unless_it_is_ok() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let finished = finished(doctor(&["--json", "--endpoint", &serve.url()]));
    let checks = checks(&finished);
    for check in &checks {
        let members: Vec<&String> = check.as_object().unwrap().keys().collect();
        assert_eq!(members, ["check", "state", "found", "meaning", "action"]);
        assert!(!text(check, "found").is_empty() && !text(check, "meaning").is_empty(), "{check}");
        assert_eq!(text(check, "action").is_empty(), check["state"] == "ok", "{check}");
    }
    let receiver = check(&checks, "receiver");
    assert_eq!(receiver["state"], "ok", "{receiver}");
    assert!(text(receiver, "found").contains("accepted an export without profiles"), "{receiver}");
    let clock = spanprof_os::probe_clock(spanprof_os::ClockChoice::Auto, 100).unwrap();
    assert!(text(check(&checks, "cpu_clock"), "found").starts_with(clock.name));
}

#[test]
fn a_text_without_terminal_has_a_line_for_each_check_and_no_color() {
    let text = finished(doctor(&["--endpoint", "http://127.0.0.1:9"]));
    let json = finished(doctor(&["--endpoint", "http://127.0.0.1:9", "--json"]));
    assert!(!text.stdout.contains('\x1b'), "{text:?}");
    let states = ["ok ", "limited ", "problem "];
    let lines = text.stdout.lines().filter(|line| states.iter().any(|state| line.starts_with(state))).count();
    assert_eq!(lines, checks(&json).len(), "{text:?}");
    let last = text.stdout.lines().last().unwrap();
    assert!(last.contains(" ok, ") && last.contains(" limited, ") && last.ends_with(" with a problem"), "{last}");
}

#[test]
fn a_receiver_that_refuses_connections_is_a_problem_with_the_remedy() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let checks = checks(&finished(doctor(&["--json", "--endpoint", &format!("http://127.0.0.1:{port}")])));
    let receiver = check(&checks, "receiver");
    assert_eq!(receiver["state"], "problem", "{receiver}");
    assert!(text(receiver, "found").contains("cannot connect"), "{receiver}");
    assert!(text(receiver, "action").contains("spanprof serve"), "{receiver}");
}

#[test]
fn a_receiver_without_the_profiles_signal_is_a_problem_that_names_the_feature_gate() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let length = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let checks = checks(&finished(doctor(&["--json", "--endpoint", &url])));
    let receiver = check(&checks, "receiver");
    assert_eq!(receiver["state"], "problem", "{receiver}");
    assert!(text(receiver, "found").contains("profiles are not enabled"), "{receiver}");
    assert!(text(receiver, "action").contains("--feature-gates=service.profilesSupport"), "{receiver}");
    assert!(answer.join().unwrap().starts_with("POST /v1development/profiles HTTP/1.1\r\n"));
}

#[test]
fn an_address_that_is_none_is_an_invalid_command_line() {
    let finished = finished(doctor(&["--endpoint", "not a url"]));
    assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{finished:?}");
    assert!(finished.stderr.contains("expected http://host:4318"), "{finished:?}");
}

#[test]
fn receivers_are_those_of_the_variables_and_the_default_says_that_none_is_configured() {
    let stored = TestDirectory::new();
    let serve = Serve::start(stored.path(), &[]);
    let mut configured = doctor(&["--json"]);
    configured.env("OTEL_EXPORTER_OTLP_ENDPOINT", serve.url());
    let found = checks(&finished(configured));
    let receiver = check(&found, "receiver");
    assert_eq!(receiver["state"], "ok", "{receiver}");
    let default = checks(&finished(doctor(&["--json"])));
    let receiver = check(&default, "receiver");
    assert!(text(receiver, "found").starts_with("no receiver configured: "), "{receiver}");
    let home = TestDirectory::new();
    let mut files = doctor(&["--json"]);
    files.env("SPANPROF_FILE_DIRECTORY", home.path());
    let files = checks(&finished(files));
    assert_eq!(check(&files, "file_directory")["state"], "ok");
    assert!(text(check(&files, "receiver"), "found").starts_with("none is configured"));
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn a_misspelled_variable_has_its_nearest_name_and_those_of_every_language_are_known() {
    let mut misspelled = doctor(&["--json", "--endpoint", "http://127.0.0.1:9"]);
    misspelled
        .env("SPANPROF_SAMPL_RATE", "100")
        .env("SPANPROF_EVENT_LOOP_BLOCK", "20")
        .env("SPANPROF_UPLOAD_INTERVAL", "x");
    let found = checks(&finished(misspelled));
    let warnings: Vec<&str> =
        found.iter().filter(|check| check["check"] == "configuration").map(|check| text(check, "found")).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.contains("did you mean `SPANPROF_SAMPLE_RATE`?")), "{warnings:?}");
    let mut disabled = doctor(&["--json", "--endpoint", "http://127.0.0.1:9"]);
    disabled.env("SPANPROF_DISABLED", "1");
    let found = checks(&finished(disabled));
    assert_eq!(check(&found, "configuration")["state"], "problem");
}

#[test]
fn limits_of_the_shell_are_found_with_their_effect() {
    let signals = checks(&doctor_under("ulimit -i 0", "--json --endpoint http://127.0.0.1:9"));
    let queued = check(&signals, "queued_signals");
    assert_eq!(queued["state"], "problem", "{queued}");
    assert!(text(queued, "found").starts_with("RLIMIT_SIGPENDING is 0"), "{queued}");
}

#[test]
fn a_seccomp_filter_is_found_with_the_call_that_it_refuses() {
    for (refusal, how) in [(CallRefusal::EndsProcess, "ends the process"), (CallRefusal::Errno(1), "not permitted")] {
        // The filter is that of the thread and of the processes that it starts.
        let filtered = std::thread::spawn(move || {
            refuse_call(SystemCall::PerfEventOpen, refusal);
            finished(doctor(&["--json", "--endpoint", "http://127.0.0.1:9"]))
        });
        let checks = checks(&filtered.join().unwrap());
        let seccomp = check(&checks, "seccomp");
        assert_eq!(seccomp["state"], "limited", "{seccomp}");
        assert!(text(seccomp, "found").starts_with("a filter that refuses perf_event_open"), "{seccomp}");
        assert!(text(seccomp, "found").contains(how), "{seccomp}");
        assert!(text(check(&checks, "cpu_clock"), "found").starts_with("thread_timer"));
    }
}

#[test]
fn without_any_clock_there_is_a_problem() {
    let filtered = std::thread::spawn(|| {
        refuse_call(SystemCall::PerfEventOpen, CallRefusal::EndsProcess);
        refuse_call(SystemCall::TimerCreate, CallRefusal::Errno(1));
        finished(doctor(&["--json", "--endpoint", "http://127.0.0.1:9"]))
    });
    let checks = checks(&filtered.join().unwrap());
    let clock = check(&checks, "cpu_clock");
    assert_eq!(clock["state"], "problem", "{clock}");
    assert!(text(clock, "action").contains("seccomp"), "{clock}");
}
