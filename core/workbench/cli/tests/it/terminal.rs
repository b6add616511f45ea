//! The verbs on a terminal: rows that fit, colors, and output that is not for people.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcsetwinsize, Winsize};
use unicode_width::UnicodeWidthStr;

use crate::fixture::{command, encoded, spanprof, window, TestDirectory, TestSample};

/// A finished process whose stdout was a terminal.
#[derive(Debug)]
struct OnTerminal {
    code: i32,
    stdout: String,
    stderr: String,
}

impl OnTerminal {
    /// Width of the widest line.
    fn widest(&self) -> usize {
        self.stdout.lines().map(|line| without_styles(line).width()).max().unwrap_or(0)
    }
}

fn without_styles(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// Both ends of a terminal.
pub fn terminal(columns: u16) -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (ours, theirs.into())
}

fn on_terminal(columns: u16, arguments: &[&str], environment: &[(&str, &str)]) -> OnTerminal {
    let (ours, theirs) = terminal(columns);
    let mut command = command(arguments);
    command.env_remove("NO_COLOR").env("TERM", "xterm").envs(environment.iter().copied());
    command.stdout(theirs).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The command holds the other end of the terminal until it is dropped.
    drop(command);
    let mut stdout = Vec::new();
    // Reading fails once the other end is closed.
    let _ = std::fs::File::from(ours).read_to_end(&mut stdout);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let stdout = String::from_utf8(stdout).unwrap().replace("\r\n", "\n");
    OnTerminal { code: child.wait().unwrap().code().unwrap(), stdout, stderr }
}

/// The text on a terminal that is stdout and stderr.
fn all_on_terminal(arguments: &[&str]) -> String {
    let (ours, theirs) = terminal(80);
    let mut command = command(arguments);
    command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = Vec::new();
    let _ = std::fs::File::from(ours).read_to_end(&mut text);
    child.wait().unwrap();
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

/// A profile with long names and deep stacks.
fn deep(home: &TestDirectory) -> String {
    let names: Vec<String> = (0..60)
        .map(|depth| format!("com.example.shop.checkout.CartServiceImplementation.priceOfItem{depth}"))
        .collect();
    let stack: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    let samples = [
        TestSample(&stack, 700_000_000, &[("endpoint", "/cart")], 1),
        TestSample(&stack[30..], 300_000_000, &[("endpoint", "/a/very/long/endpoint/with/many/components/cart")], 2),
    ];
    home.file("deep.otlp.pb", &encoded(&window("checkout", "cpu", &samples)))
}

#[test]
fn the_tables_of_every_verb_fit_the_terminal() {
    let home = TestDirectory::new();
    let file = deep(&home);
    for columns in [80, 160] {
        for arguments in [
            &["top", &file][..],
            &["top", &file, "--by", "line"],
            &["tree", &file],
            &["peek", "Item59", &file],
            &["list", "Item59", &file],
            &["services", &file],
            &["labels", &file],
            &["spans", &file],
            &["spans", &file, "--by", "endpoint"],
            &["explain", &file],
            &["diff", &file, &file, "--all"],
        ] {
            let done = on_terminal(columns, arguments, &[]);
            assert_eq!(done.code, 0, "{done:?}");
            assert!(done.widest() <= columns.into(), "{columns} {arguments:?}: {}\n{}", done.widest(), done.stdout);
        }
    }
}

#[test]
fn numbers_are_never_cut() {
    let home = TestDirectory::new();
    let file = deep(&home);
    let piped = spanprof(&["top", &file, "--limit", "5"]).stdout;
    let shown = on_terminal(80, &["top", &file, "--limit", "5", "--color", "never"], &[]).stdout;
    let numbers = |line: &str| -> Vec<String> { line.split_whitespace().take(5).map(str::to_owned).collect() };
    for (piped, shown) in piped.lines().zip(shown.lines()).skip(2).take(5) {
        assert_eq!(numbers(piped), numbers(shown), "{piped}\n{shown}");
    }
    assert!(shown.contains("  (paths in "), "{shown}");
}

#[test]
fn colors_follow_the_flag_and_the_environment() {
    let home = TestDirectory::new();
    let file = deep(&home);
    let is_colored = |arguments: &[&str], environment: &[(&str, &str)]| {
        let done = on_terminal(80, &[&["top", &file], arguments].concat(), environment);
        done.stdout.contains("\x1b[1m")
    };
    assert!(is_colored(&[], &[]));
    assert!(!is_colored(&[], &[("NO_COLOR", "1")]));
    assert!(!is_colored(&[], &[("TERM", "dumb")]));
    assert!(!is_colored(&["--color", "never"], &[]));
    assert!(is_colored(&["--color", "always"], &[("NO_COLOR", "1")]));
    let piped = spanprof(&["top", &file]).stdout;
    assert!(!piped.contains('\x1b'));
    let colored = spanprof(&["top", &file, "--color=always"]).stdout;
    assert!(colored.contains("\x1b[1m"));
    assert_eq!(piped, colored.lines().map(without_styles).collect::<Vec<_>>().join("\n") + "\n");
}

#[test]
fn pages_pictures_and_binary_formats_are_not_written_to_a_terminal() {
    let home = TestDirectory::new();
    let file = deep(&home);
    for (arguments, way_out) in [
        (&["flamegraph", &file][..], "-o flame.html"),
        (&["convert", &file, "--to", "flamegraph"], "-o flame.html"),
        (&["convert", &file, "--to", "svg"], "-o flame.svg"),
        (&["convert", &file, "--to", "pprof"], "-o profile.pb.gz"),
        (&["convert", &file, "--to", "otlp"], "-o profile.otlp.pb.gz"),
        (&["diff", &file, &file, "-o", "-"], "-o diff.html"),
    ] {
        let done = on_terminal(80, arguments, &[]);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        assert!(done.stderr.contains("is not written to a terminal") && done.stderr.contains(way_out), "{done:?}");
    }
    let folded = on_terminal(80, &["convert", &file, "--to", "folded"], &[]);
    assert!(folded.code == 0 && folded.stdout.contains("priceOfItem0 700000000"), "{folded:?}");
    assert!(spanprof(&["flamegraph", &file]).stdout.starts_with("<!doctype html>"));
}

#[test]
fn a_written_file_is_confirmed_with_its_size() {
    let home = TestDirectory::new();
    let file = deep(&home);
    let out = home.path().join("flame.html").to_str().unwrap().to_owned();
    let done = spanprof(&["flamegraph", &file, "-o", &out]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""));
    assert!(done.stderr.contains(&format!("wrote {out} (")) && done.stderr.ends_with(" KiB)\n"), "{done:?}");
}

#[test]
fn a_table_is_followed_by_commands_that_work() {
    let home = TestDirectory::new();
    let file = deep(&home);
    let text = all_on_terminal(&["top", &file, "--label", "endpoint=/cart", "--color", "never"]);
    let next = text.lines().find_map(|line| line.strip_prefix("next: ")).expect("a hint");
    let commands: Vec<&str> = next.split("  ·  ").collect();
    assert_eq!(commands.len(), 2, "{next}");
    for command in commands {
        let words = command.strip_prefix("spanprof ").unwrap().replace('\'', "");
        let done = spanprof(&words.split(' ').collect::<Vec<_>>());
        assert!(done.code == 0 && done.stdout.contains("priceOfItem0"), "{done:?}");
    }
    assert!(!all_on_terminal(&["top", &file, "--json"]).contains("next: "));
    assert!(!spanprof(&["top", &file]).stderr.contains("next: "));
}

#[test]
fn the_help_wraps_to_the_terminal() {
    for verb in ["", "top", "serve", "convert", "diff", "explain"] {
        let arguments: Vec<&str> = [verb, "--help"].into_iter().filter(|argument| !argument.is_empty()).collect();
        let done = on_terminal(80, &arguments, &[]);
        let prose = done.stdout.lines().filter(|line| !line.trim_start().starts_with("spanprof "));
        let widest = prose.max_by_key(|line| line.width()).unwrap();
        assert!(widest.width() <= 80, "{verb}: {widest}\n{}", done.stdout);
    }
}
