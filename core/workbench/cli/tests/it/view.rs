//! `spanprof view`: files of any age and format on the page, and nothing left behind.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::fixture::{command, encoded, number, shop, spanprof, TestDirectory};

#[test]
fn files_of_any_age_are_shown_until_a_signal_and_removed() {
    let (home, temporary) = (TestDirectory::new(), TestDirectory::new());
    let folded = home.file("old.folded", b"main;serve;price 30\nmain;serve 10\n");
    let touched = Command::new("touch").args(["-d", "2019-05-01", &folded]).status().unwrap();
    assert!(touched.success());
    let profile = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let mut child = command(&["view", &folded, &profile, "--no-open"])
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut page = String::new();
    stdout.read_line(&mut page).unwrap();
    let page = page.trim();
    assert!(page.starts_with("http://127.0.0.1:") && page.contains("/?from=155666") && page.contains("&to="), "{page}");
    let services = spanprof(&["services", page]).stdout;
    assert!(services.contains("old.folded, samples") && services.contains("checkout, cpu"), "{services}");
    let top = spanprof(&["top", page, "--service", "old.folded", "--json"]);
    assert_eq!(number(&top.stdout, "total"), 40, "{top:?}");
    let of_file = spanprof(&["top", page, "--label", "file=a.otlp.pb", "--type", "cpu", "--json"]);
    assert_eq!(number(&of_file.stdout, "total"), 1_000_000_000, "{of_file:?}");
    assert_eq!(temporary.names().len(), 1);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(temporary.names(), Vec::<String>::new());
}

#[test]
fn the_page_opens_in_the_browser_where_there_is_a_display() {
    let home = TestDirectory::new();
    let profile = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    // The browser ends the server, whose signal handlers are installed by then.
    let script = home.file("browser", b"#!/bin/sh\necho \"$1\" > \"$OPENED\"; kill -INT $PPID\n");
    // Copied by a process of its own: a program that is open for writing in a fork of this process cannot start (ETXTBSY).
    let browser = home.path().join("xdg-open");
    let copied = Command::new("install").args(["-m", "755", &script]).arg(browser).status().unwrap();
    assert!(copied.success());
    let opened = home.path().join("opened");
    let programs = format!("{}:{}", home.path().display(), std::env::var("PATH").unwrap());
    let mut child = command(&["view", &profile])
        .envs([("PATH", programs.as_str()), ("DISPLAY", ":9"), ("OPENED", opened.to_str().unwrap())])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut note = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut note).unwrap();
    if !note.contains("opened in the browser") {
        child.kill().unwrap();
    }
    let done = child.wait_with_output().unwrap();
    assert_eq!((done.status.code(), note.as_str()), (Some(0), "spanprof: opened in the browser; Ctrl-C stops\n"));
    assert_eq!(std::fs::read_to_string(opened).unwrap(), String::from_utf8_lossy(&done.stdout));
}

#[test]
fn unreadable_and_empty_files_end_with_an_error_and_leave_nothing() {
    let (home, temporary) = (TestDirectory::new(), TestDirectory::new());
    let noise = home.file("noise.pb", b"certainly not protobuf");
    let empty = home.file("empty.pb", b"");
    let page = home.file("flame.html", b"<!doctype html><html>");
    for (source, words) in [
        (noise.as_str(), "noise.pb"),
        (&empty, "got an empty file"),
        (&page, "got an HTML or XML page; open it in a browser"),
        ("/nonexistent", "cannot read"),
    ] {
        let done = command(&["view", source, "--no-open"]).env("TMPDIR", temporary.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(1) && stderr.contains(words), "{stderr}");
    }
    assert_eq!(temporary.names(), Vec::<String>::new());
}
