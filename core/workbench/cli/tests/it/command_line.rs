//! The verbs on files: exit codes, formats, messages.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::fixture::{
    command, encoded, gzip, number, shop, spanprof, spanprof_reading, window, Serve, TestDirectory, TestSample,
};

#[test]
fn top_reads_every_profile_format() {
    let home = TestDirectory::new();
    let plain = encoded(&shop("checkout"));
    let protobuf = home.file("a.otlp.pb", &plain);
    let zipped = home.file("a.otlp.pb.gz", &gzip(&plain));
    let json = spanprof(&["convert", &protobuf, "--to", "json"]).stdout;
    let lines = home.file("a.json", format!("{json}{json}").as_bytes());
    let pprof = home.path().join("a.pprof").to_str().unwrap().to_owned();
    assert_eq!(spanprof(&["convert", &zipped, "--to", "pprof", "-o", &pprof]).code, 0);
    for (file, times) in [(&protobuf, 1), (&zipped, 1), (&lines, 2), (&pprof, 1)] {
        let top = spanprof(&["top", file, "--type", "cpu", "--json"]);
        assert_eq!(top.code, 0, "{file}: {top:?}");
        assert_eq!(number(&top.stdout, "total"), times * 1_000_000_000, "{file}: {top:?}");
        assert!(top.stdout.contains(r#""function":"price""#), "{file}: {top:?}");
    }
    let of_stdin = spanprof_reading(&["top", "-", "--json"], &plain);
    assert_eq!(number(&of_stdin.stdout, "total"), 1_000_000_000);
    let all = spanprof(&["top", home.path().to_str().unwrap(), "--type", "cpu", "--json"]);
    assert_eq!(number(&all.stdout, "total"), 5 * 1_000_000_000, "{all:?}");
}

#[test]
fn several_sources_are_merged() {
    let home = TestDirectory::new();
    let first = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let second = home.file("b.otlp.pb.gz", &gzip(&encoded(&shop("checkout"))));
    let top = spanprof(&["top", &first, &second, "--type", "cpu", "--json"]);
    assert_eq!(number(&top.stdout, "total"), 2 * 1_000_000_000, "{top:?}");
    let check = spanprof(&["check", &first, &second]);
    assert_eq!((check.code, check.stdout.lines().count()), (0, 2), "{check:?}");
    let absent = spanprof(&["top", &first, "absent.pb"]);
    assert!(absent.code != 0 && absent.stderr.contains("cannot read absent.pb"), "{absent:?}");
    let twice = spanprof_reading(&["top", "-", "-"], b"");
    assert!(twice.code != 0 && twice.stderr.contains("stdin is named twice"), "{twice:?}");
}

#[test]
fn folded_stacks_are_read_as_counted_samples() {
    let home = TestDirectory::new();
    let folded = home.file("perf.folded", b"main;serve;price 30\nmain;serve 10\n");
    let top = spanprof(&["top", &folded, "--json"]);
    assert_eq!(number(&top.stdout, "total"), 40, "{top:?}");
    assert!(top.stdout.contains(r#""type":"samples","unit":"count""#), "{top:?}");
    let check = spanprof(&["check", &folded]);
    assert!(check.code != 0 && check.stdout.contains("got folded stacks"), "{check:?}");
}

#[test]
fn the_text_table_has_flat_own_and_cum_and_the_number_of_rows_left_out() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let top = spanprof(&["top", &file, "--limit", "2", "--sort", "cum"]);
    assert_eq!(top.code, 0);
    let lines: Vec<&str> = top.stdout.lines().collect();
    assert_eq!(lines[0], "cpu: 1.00 s in 3 stacks, 6 functions");
    assert_eq!(
        lines[2].split_whitespace().collect::<Vec<_>>(),
        ["0", "0.0%", "0", "0.0%", "1.00", "s", "100.0%", "main", "/srv/checkout/app.py"]
    );
    assert!(lines[4].contains("4 more"), "{top:?}");
}

#[test]
fn a_flame_graph_is_one_file_written_atomically() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let out = home.path().join("out.html").to_str().unwrap().to_owned();
    let done = spanprof(&["flamegraph", &file, "-o", &out]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    let page = std::fs::read_to_string(&out).unwrap();
    assert!(page.to_lowercase().starts_with("<!doctype html>") && page.contains("price") && page.contains("checkout"));
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"));
    assert_eq!(home.names(), ["a.otlp.pb", "out.html"]);
    let blocked = spanprof(&["flamegraph", &file, "-o", "/nonexistent/out.html"]);
    assert_eq!(blocked.code, 1);
    assert!(blocked.stderr.contains("cannot write /nonexistent/out.html"), "{blocked:?}");
}

#[test]
fn check_exits_with_one_when_it_finds_an_error() {
    let home = TestDirectory::new();
    let good = home.file("good.otlp.pb", &encoded(&shop("checkout")));
    let done = spanprof(&["check", &good]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("nothing wrong found"), "{done:?}");
    // A dictionary whose tables lack their entry 0.
    let bad = home.file("bad.otlp.pb", &[0x12, 0x04, 0x2a, 0x02, b'h', b'i']);
    let done = spanprof(&["check", &bad]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("error:"), "{done:?}");
    let both = spanprof(&["check", home.path().to_str().unwrap(), "--json"]);
    assert_eq!(both.code, 1, "{both:?}");
    assert!(both.stdout.starts_with(r#"{"passed":false,"files":["#), "{both:?}");
    let noise = home.file("noise.pb", b"certainly not protobuf");
    assert_eq!(spanprof(&["check", &noise]).code, 1);
    let pprof = home.path().join("a.pprof").to_str().unwrap().to_owned();
    assert_eq!(spanprof(&["convert", &good, "--to", "pprof", "-o", &pprof]).code, 0);
    let done = spanprof(&["check", &pprof]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("expected OTLP profiles, got pprof"), "{done:?}");
}

#[test]
fn an_empty_selection_lists_what_is_available() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    for (flag, value, words) in [
        ("--service", "chekout", "there is no service \"chekout\"\n  did you mean \"checkout\"?"),
        ("--service", "billing", "available: \"checkout\" (cpu)"),
        ("--type", "cpuu", "did you mean `--type cpu`?"),
        ("--type", "wall", "available: \"checkout\" (cpu); choose one with --type, or profile with wall=true"),
    ] {
        let done = spanprof(&["top", &file, flag, value]);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""));
        assert!(done.stderr.contains("no samples") && done.stderr.contains(words), "{done:?}");
    }
    let names: Vec<String> = (0..200).map(|number| format!("service-{number}")).collect();
    for name in &names {
        home.file(&format!("{name}.otlp.pb"), &encoded(&shop(name)));
    }
    let done = spanprof(&["top", home.path().to_str().unwrap(), "--service", "billing"]);
    assert!(done.stderr.contains(" services; `spanprof services` lists them") && done.stderr.len() < 500, "{done:?}");
}

#[test]
fn a_wrong_command_line_exits_with_two_and_a_hint() {
    for (arguments, words) in [
        (&["serv"][..], "did you mean `spanprof serve`?"),
        (&["top", "f", "--servce", "x"], "did you mean `--service`?"),
        (&["top"], "spanprof top --help"),
        (&["diff", "f"], "COMPARISON"),
        (&["diff", "-", "-"], "stdin is named twice"),
        (&["top", "/etc/hostname", "--from", "soon"], "RFC 3339"),
        (&["top", "/etc/hostname", "--trace-id", "1"], "32 hex digits"),
        (&["convert", "f", "--to", "xml"], "otlp, pprof, folded, html, svg, speedscope, firefox or json"),
        (&["convert", "f", "--to", "speedscop"], "did you mean `--to speedscope`?"),
        (&["convert", "f", "--to", "otlp", "--to", "pprof"], "one format"),
        (&["top", "f", "--to", "otlp"], "RFC 3339"),
        (&["serve", "--http", "70000"], "a port from 0 to 65535"),
        (&["serve", "--listen", "localhots"], "an IP address"),
        (&["top", "ftp://h"], "https://HOST:PORT"),
        (&[], "Verbs:"),
    ] {
        let done = spanprof(arguments);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        assert!(done.stderr.contains(words), "{arguments:?}: {done:?}");
    }
    let missing = spanprof(&["top", "/nonexistent/cpu.pb"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("/nonexistent/cpu.pb") && missing.stderr.contains("http://"), "{missing:?}");
}

#[test]
fn every_verb_has_help() {
    for verb in ["serve", "top", "diff", "flamegraph", "convert", "check"] {
        for arguments in [[verb, "--help"], ["help", verb]] {
            let help = spanprof(&arguments);
            assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{help:?}");
            assert!(help.stdout.contains(&format!("Usage: spanprof {verb}")), "{help:?}");
        }
    }
    assert!(spanprof(&["--help"]).stdout.contains("flamegraph"));
    assert!(spanprof(&["--version"]).stdout.starts_with("spanprof "));
}

#[test]
fn a_reader_that_closes_stdout_early_is_no_error() {
    let home = TestDirectory::new();
    let names: Vec<String> = (0..20_000).map(|number| format!("function_{number}")).collect();
    let stacks: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let samples: Vec<TestSample<'_>> = stacks.iter().map(|stack| TestSample(stack, 10_000_000, &[], 0)).collect();
    let file = home.file("wide.otlp.pb", &encoded(&window("wide", "cpu", &samples)));
    let mut child =
        command(&["top", &file, "--limit", "0"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 16]).unwrap();
    drop(stdout);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn hostile_files_end_in_an_error_not_in_a_panic() {
    let home = TestDirectory::new();
    let whole = encoded(&shop("checkout"));
    let bomb = gzip(&vec![0u8; 16 << 20]).repeat(64);
    let mut hostile: Vec<Vec<u8>> = vec![vec![], b"{".to_vec(), b"\x1f\x8b".to_vec(), bomb, vec![0xff; 4096]];
    hostile.extend((1..8).map(|part| whole[..whole.len() * part / 8].to_vec()));
    for (number, bytes) in hostile.iter().enumerate() {
        let file = home.file(&format!("{number}.pb"), bytes);
        for verb in [&["top"][..], &["check"], &["convert", "--to", "otlp"], &["flamegraph"]] {
            let mut arguments = verb.to_vec();
            arguments.push(&file);
            let done = spanprof(&arguments);
            assert!([0, 1].contains(&done.code), "{number} {verb:?}: {done:?}");
            assert!(!done.stderr.contains("panicked"), "{number} {verb:?}: {done:?}");
        }
    }
    let all = spanprof(&["top", home.path().to_str().unwrap()]);
    assert_eq!(all.code, 1, "{all:?}");
}

#[test]
fn a_port_in_use_is_named_in_the_error() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let other = TestDirectory::new();
    let port = serve.http.split(':').next_back().unwrap();
    let done = spanprof(&["serve", "--grpc", "0", "--http", port, "--dir", other.path().to_str().unwrap()]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stderr.contains("is in use by another program") && done.stderr.contains("--http 0"), "{done:?}");
}

#[test]
fn a_directory_of_a_running_server_is_named_in_the_error() {
    let home = TestDirectory::new();
    let _serve = Serve::start(home.path(), &[]);
    let done = spanprof(&["serve", "--grpc", "0", "--http", "0", "--dir", home.path().to_str().unwrap()]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stderr.contains("another `spanprof serve` keeps its profiles in"), "{done:?}");
}

#[test]
fn the_first_line_has_the_addresses_of_the_server() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    assert!(serve.first_line.contains(&format!("\"url\":\"http://{}/\"", serve.http)), "{}", serve.first_line);
    assert_eq!(number(&serve.first_line, "pid"), i64::from(serve.pid()));
    let other = TestDirectory::new();
    let mut plain = command(&["serve", "--grpc", "0", "--http", "0", "--dir", other.path().to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut start = [0; 23];
    plain.stdout.take().unwrap().read_exact(&mut start).unwrap();
    plain.kill().unwrap();
    plain.wait().unwrap();
    assert_eq!(&start, b"serving grpc=127.0.0.1:");
}

/// Answers two requests like a program with `pull`; returns the address, and the request lines at the end.
fn program_with_pull(profile: Vec<u8>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answers = std::thread::spawn(move || {
        let answer = || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", profile.len());
            stream.write_all(&[head.as_bytes(), &profile].concat()).unwrap();
            String::from_utf8_lossy(&request[..length]).lines().next().unwrap().to_owned()
        };
        (0..2).map(|_| answer()).collect()
    });
    (address, answers)
}

#[test]
fn the_endpoint_of_a_program_is_a_source() {
    let pprof = spanprof_profile::encode::pprof::encode(&shop("checkout"));
    let (address, requests) = program_with_pull(pprof);
    for path in ["/debug/pprof/", "/debug/pprof/goroutine?debug=0"] {
        let top = spanprof(&["top", &format!("{address}{path}"), "--from", "-1m", "--type", "cpu", "--json"]);
        assert_eq!(top.code, 0, "{top:?}");
        assert_eq!(number(&top.stdout, "total"), 1_000_000_000, "{top:?}");
    }
    let expected = ["profile?seconds=1", "goroutine?debug=0"].map(|path| format!("GET /debug/pprof/{path} HTTP/1.1"));
    assert_eq!(requests.join().unwrap(), expected);
    let absent = spanprof(&["top", &format!("{address}/debug/pprof/")]);
    assert!(absent.code == 1 && absent.stderr.contains("is the key `pull` set"), "{absent:?}");
}

#[test]
fn the_reference_has_each_verb_with_the_text_of_the_help() {
    let help = spanprof(&["--help"]).stdout;
    let verbs = help.split("Verbs:\n").nth(1).unwrap();
    let is_verb = |line: &&str| line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  help ");
    let page = include_str!("../../../../../docs/reference/cli.md");
    let rows =
        page.split("## ").next().unwrap().lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let rows: Vec<String> = rows.map(|row| row.replacen("` | ", " ", 1)).collect();
    assert_eq!(rows.len(), verbs.lines().filter(is_verb).count());
    let verbs = verbs.split_whitespace().collect::<Vec<_>>().join(" ");
    for row in rows {
        assert!(verbs.contains(&row), "{row}");
    }
}
