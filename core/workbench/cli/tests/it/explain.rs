//! `spanprof explain`: findings of files and of a running `serve`, hostile names, the width of the text.

use serde_json::Value;
use spanprof_profile::{Attribute, ProfilesData};

use crate::client::post;
use crate::fixture::{encoded, ids, shop, spanprof, window, Serve, TestDirectory, TestSample, PERIOD_NS};

const SECOND: i64 = 1_000_000_000;

fn hot(name: &str) -> Vec<u8> {
    let samples = [
        TestSample(&["main", "serve", name], 7 * SECOND, &[], 0),
        TestSample(&["main", "serve", "pay"], SECOND, &[], 0),
    ];
    encoded(&window("checkout", "cpu", &samples))
}

#[test]
fn the_text_has_the_finding_its_evidence_and_a_command_that_works() {
    let home = TestDirectory::new();
    let file = home.file("cpu.otlp.pb", &hot("price"));
    let gc = [TestSample(&["main", "serve", "price", "[GC]", "[automatic]"], 2 * SECOND, &[], 0)];
    let gc = home.file("gc.otlp.pb", &encoded(&window("checkout", "gc", &gc)));
    let done = spanprof(&["explain", &file, &gc]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[0], "profiles of checkout (cpu, gc)");
    assert_eq!(lines[2], "One problem found.");
    assert_eq!(lines[4], "1. garbage collection takes 25.0% of the CPU time", "{done:?}");
    for words in [
        "2. observation: price uses 87.5% of the CPU time",
        "/srv/checkout/app.py:12",
        "95% interval 85.0 … 89.6%; 700 samples; cpu 7.00 s",
        "callers: serve 100.0%",
        "next: spanprof list '^price$' SOURCE --type cpu",
    ] {
        assert!(done.stdout.contains(words), "{words}: {}", done.stdout);
    }
    assert_eq!(done.stdout, spanprof(&["explain", &gc, &file]).stdout, "in any order");
    let of_type = spanprof(&["explain", &file, &gc, "--type", "gc"]);
    assert!(!of_type.stdout.contains("price uses"), "{of_type:?}");
}

#[test]
fn the_advice_to_profile_the_heap_is_absent_where_allocators_are_named() {
    let home = TestDirectory::new();
    let file = |name: &str, functions: &[&str]| {
        let samples = [TestSample(functions, 4 * SECOND, &[], 0)];
        home.file(&format!("{name}.otlp.pb"), &encoded(&window("checkout", name, &samples)))
    };
    let (gc, allocated) = (file("gc", &["main", "[GC]"]), file("alloc_space", &["main", "build"]));
    let advice = "with heap=true";
    // In one line, since the advice may be wrapped.
    let text = |files: &[&str]| {
        let done = spanprof(&[&["explain"], files].concat());
        done.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let pages = [text(&[&gc]), text(&[&gc, &allocated])];
    assert!(pages.iter().all(|text| text.contains("garbage collection takes 40.0% of the time")), "{pages:?}");
    assert!(pages[0].contains(advice) && !pages[1].contains(advice), "{pages:?}");
    assert!(pages[1].contains("allocators: build 100.0%"), "{pages:?}");
}

#[test]
fn the_command_selects_one_of_the_anonymous_functions_of_a_file() {
    let home = TestDirectory::new();
    let name = |line| format!("(anonymous) {}.js:{line}", "subscriptions-".repeat(4));
    let (leaking, other) = (name(37), name(38));
    let samples = [TestSample(&["main", &leaking], 7 * SECOND, &[], 0), TestSample(&["main", &other], SECOND, &[], 0)];
    let file = home.file("cpu.otlp.pb", &encoded(&window("checkout", "cpu", &samples)));
    let result: Value = serde_json::from_str(&spanprof(&["explain", &file, "--json"]).stdout).unwrap();
    let command = result["findings"][0]["command"].as_str().unwrap();
    let pattern = command.split('\'').nth(1).unwrap();
    let selected: Value = serde_json::from_str(&spanprof(&["peek", pattern, &file, "--json"]).stdout).unwrap();
    assert_eq!(
        (&selected["matched"], &selected["functions"][0]["function"]),
        (&1.into(), &leaking.into()),
        "{command}"
    );
}

#[test]
fn the_json_has_stable_names_and_a_store_gives_the_same_result() {
    let home = TestDirectory::new();
    let file = home.file("cpu.otlp.pb", &hot("price"));
    let done = spanprof(&["explain", &file, "--json"]);
    let result: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(result["services"], serde_json::json!({"checkout": {"cpu": 800.0}}));
    let finding = &result["findings"][0];
    let names: Vec<&String> = finding.as_object().unwrap().keys().collect();
    let expected = [
        "rule", "severity", "title", "service", "type", "function", "share", "cost", "samples", "evidence", "command",
        "page",
    ];
    assert_eq!(names, expected);
    assert_eq!((&finding["rule"], &finding["function"]["function"]), (&"hot_code".into(), &"price".into()));
    assert_eq!((&finding["share"]["value"], &finding["cost"]), (&0.875.into(), &0.7.into()));
    assert_eq!(finding["evidence"]["cpu"], serde_json::json!({"value": 7 * SECOND, "unit": "nanoseconds"}));
    assert_eq!(finding["evidence"]["callers"][0]["function"], "serve");
    let serve = Serve::start(&home.path().join("store"), &[]);
    assert_eq!(post(&serve.http, &[], &hot("price")).status, 200);
    let stored = spanprof(&["explain", &serve.url(), "--json"]);
    let stored: Value = serde_json::from_str(&stored.stdout).unwrap();
    assert_eq!(stored["findings"][0]["evidence"], finding["evidence"]);
}

#[test]
fn no_problem_and_no_samples_are_reported() {
    let home = TestDirectory::new();
    let even: Vec<String> = (0..20).map(|nth| format!("work{nth}")).collect();
    let stacks: Vec<[&str; 2]> = even.iter().map(|name| ["main", name.as_str()]).collect();
    let samples: Vec<_> = stacks.iter().map(|stack| TestSample(stack, 40 * PERIOD_NS, &[], 0)).collect();
    let file = home.file("even.otlp.pb", &encoded(&window("checkout", "cpu", &samples)));
    let done = spanprof(&["explain", &file]);
    assert_eq!(done.code, 0);
    let line = "No problems found; hottest own code is work0 (5.0% of the CPU time).";
    assert!(done.stdout.lines().any(|known| known == line), "{done:?}");
    let hot = home.file("hot.otlp.pb", &hot("price"));
    let done = spanprof(&["explain", &hot, "--json"]);
    let result: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(result["findings"][0]["severity"], "observation", "CPU time alone is no problem");
    let idle = home.file("idle.otlp.pb", &encoded(&window("idle", "off_cpu", &samples[..1])));
    assert!(spanprof(&["explain", &idle]).stdout.contains("\nNo problems found.\n"));
    let few = home.file("few.otlp.pb", &encoded(&shop("checkout")));
    let done = spanprof(&["explain", &few]);
    assert!(done.stdout.contains("1. limitation: the CPU profile has only 100 samples"), "{done:?}");
    let words = done.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("of the CPU time). The profile has one limitation. 1. limitation: "), "{done:?}");
    let none = spanprof(&["explain", &file, "--service", "absent"]);
    assert_eq!((none.code, none.stdout.as_str()), (1, ""), "{none:?}");
    assert!(none.stderr.contains("\"checkout\" (cpu)"), "{none:?}");
    assert_eq!(spanprof(&["explain"]).code, 2);
}

/// A window of ended requests of one duration and span, 0 for none.
fn requests(count: i64, duration_ns: i64, span: u64) -> ProfilesData {
    let mut data = window("checkout", "requests", &[TestSample(&["[request]"], count, &[("endpoint", "/pay")], span)]);
    let duration = data.dictionary.attribute("duration", spanprof_profile::Value::Int(duration_ns), "ns");
    let endpoint = data.resources[0].profiles[0].samples[0].attributes;
    let labels = [data.dictionary.get_attribute_set(endpoint), &[duration]].concat();
    let labels = data.dictionary.attribute_set(&labels);
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        (profile.sample_type.unit, profile.period_type.unit, profile.period) = ("count".into(), "count".into(), 1);
        profile.samples.iter_mut().for_each(|sample| sample.attributes = labels);
    }
    data
}

#[test]
fn a_hint_says_that_the_waits_of_long_requests_are_unknown() {
    let home = TestDirectory::new();
    let cpu = home.file("cpu.otlp.pb", &hot("price"));
    let long = home.file("long.otlp.pb", &encoded(&requests(20, 1_500_000_000, 0)));
    let short = home.file("short.otlp.pb", &encoded(&requests(20, 500_000_000, 0)));
    let lock = [TestSample(&["main", "[lock]"], SECOND, &[], 0)];
    let waits = ["off_cpu", "delay", "wall"]
        .map(|name| home.file(&format!("{name}.otlp.pb"), &encoded(&window("checkout", name, &lock))));
    let last = |files: &[&str]| {
        let done = spanprof(&[&["explain"], files].concat());
        let paragraph = done.stdout.rsplit("\n\n").next().unwrap_or_default();
        paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let hint =
        "Waits of checkout are unknown: its requests took 30.0 s, its CPU time is 8.00 s, and there is no profile of \
                wall time, off-CPU time or locks. SPANPROF_PROFILES=all records them.";
    assert_eq!(last(&[&cpu, &long]), hint);
    assert!(!last(&[&cpu, &short]).contains("unknown"), "10 s of requests, 8 s of CPU time");
    assert!(!last(&[&long]).contains("unknown"), "the CPU time is unknown");
    let mut node = requests(20, 1_500_000_000, 7);
    node.resources[0].resource.push(Attribute::string("process.runtime.name", "nodejs"));
    let node = home.file("node.otlp.pb", &encoded(&node));
    assert!(!last(&[&cpu, &node]).contains("unknown"), "they await");
    assert_eq!(spanprof(&["spans", &node, "--sort", "wait"]).stderr, "");
    for waits in &waits {
        assert!(!last(&[&cpu, &long, waits]).contains("unknown"), "{waits}");
    }
    let json = |file: &str| -> Value {
        serde_json::from_str(&spanprof(&["explain", &cpu, file, "--json"]).stdout).expect("JSON")
    };
    assert_eq!(json(&long)["hints"], serde_json::json!([hint]));
    assert_eq!(json(&short)["hints"], serde_json::json!([]));
    let markdown = spanprof(&["explain", &cpu, &long, "--markdown"]);
    assert!(markdown.stdout.ends_with("SPANPROF\\_PROFILES=all records them.\n"), "{markdown:?}");
}

#[test]
fn the_slowest_request_is_a_finding_with_its_wait_and_the_command_that_opens_it() {
    let home = TestDirectory::new();
    let route = &[("endpoint", "/pay")];
    let explained = |took_ms: i64, waited_ms: i64, others_ms: i64, reason: &str| {
        let pay = ["main", "checkout", "call_payment_provider", "sleep /usr/lib/python3.11/lib.py", reason];
        let rows = [
            TestSample(&pay, waited_ms * 1_000_000, route, 7),
            TestSample(&["main", "checkout", "load", "[I/O]"], 40_000_000, route, 7),
        ];
        let waits = home.file("waits.otlp.pb", &encoded(&window("checkout", "off_cpu", &rows)));
        let ended = [requests(1, took_ms * 1_000_000, 7), requests(40, others_ms * 1_000_000, 0)];
        let [slow, others] = ended.each_ref().map(encoded);
        let files = [waits, home.file("slow.otlp.pb", &slow), home.file("others.otlp.pb", &others)];
        let done = spanprof(&["explain", &files[0], &files[1], &files[2], "--json"]);
        let result: Value = serde_json::from_str(&done.stdout).unwrap();
        let findings = result["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["rule"] == "slow_request")
    };
    let finding = explained(2_900, 2_500, 100, "[sleep]").unwrap();
    let title = "/pay: the slowest request took 2.90 s, 2.50 s of it waiting (sleep) in call_payment_provider";
    assert_eq!(finding["title"], title);
    assert_eq!((&finding["evidence"]["line"], &finding["severity"]), (&12.into(), &"problem".into()));
    let [trace, span] = [hex::encode(ids(7).0), hex::encode(ids(7).1)];
    let command = format!("spanprof spans SOURCE --against-endpoint --trace-id {trace} --span-id {span}");
    assert_eq!(finding["command"], command);
    for (took, waited, others, reason) in [
        (900, 800, 10, "[sleep]"),
        (2_900, 2_500, 1_600, "[sleep]"),
        (2_900, 1_200, 100, "[sleep]"),
        (2_900, 2_500, 100, "[scheduled out]"),
    ] {
        assert_eq!(explained(took, waited, others, reason), None, "{took} {waited} {others} {reason}");
    }
}

#[test]
fn markdown_has_the_same_findings_with_escaped_names() {
    let home = TestDirectory::new();
    let file = home.file("cpu.otlp.pb", &hot("price<b>|*x*`[a](http://b)"));
    let done = spanprof(&["explain", &file, "--markdown"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let name = r"price\<b\>\|\*x\*\`\[a\]\(http://b\)";
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[0], r"### Diagnosis: checkout \(cpu\)");
    assert_eq!(lines[2], format!(r"**No problems found; hottest own code is {name} \(87.5% of the CPU time\).**"));
    assert_eq!(lines[4], format!("1. **observation: {name} uses 87.5% of the CPU time**"));
    assert_eq!(lines[5], r"   - <code>/srv/checkout/app.py:12</code>");
    assert!(lines[6].starts_with("   - 95% interval 85.0 … 89.6%; 700 samples; cpu 7.00 s"), "{done:?}");
    assert!(lines.iter().any(|line| line.starts_with("   - next: <code>spanprof list ")), "{done:?}");
    assert_eq!(spanprof(&["explain", &file, "--markdown", "--json"]).code, 2);
}

#[test]
fn names_are_data_and_lines_have_eighty_columns() {
    let home = TestDirectory::new();
    for name in [
        "a\u{1b}[2J\nnext: rm 'x'; $(touch /tmp/x) `id`",
        &"long_name_".repeat(40),
        &("x ".repeat(17) + "next: rm -r ."),
        "ü.日本'\"|&",
    ] {
        let file = home.file("hostile.otlp.pb", &hot(name));
        let done = spanprof(&["explain", &file]);
        assert_eq!(done.code, 0);
        assert!(!done.stdout.contains('\u{1b}'), "{done:?}");
        for line in done.stdout.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let commands: Vec<&str> = done.stdout.lines().filter(|line| line.starts_with("   next:")).collect();
        assert_eq!(commands.len(), 1, "{done:?}");
        let pattern = commands[0].strip_prefix("   next: spanprof list '^").and_then(|rest| rest.split('\'').next());
        let pattern = pattern.unwrap_or_else(|| panic!("{}", commands[0])).trim_end_matches('$');
        assert!(pattern.chars().all(|letter| letter.is_alphanumeric() || "_<>/#@,=.*".contains(letter)), "{pattern}");
    }
}
