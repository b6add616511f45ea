//! `spanprof diff`: its rows, its gate, and its sources.

use spanprof_profile::encode::pprof;
use spanprof_profile::{Attribute, ProfilesData};

use crate::client::{get, post};
use crate::fixture::{encoded, number, shop, spanprof, window, window_at, Serve, TestDirectory, TestSample, PERIOD_NS};

#[test]
fn a_comparison_shows_new_gone_and_changed_functions() {
    let home = TestDirectory::new();
    let file = |name: &str, samples: &[TestSample<'_>]| home.file(name, &encoded(&window("cart", "wall", samples)));
    let sample = |stack, ms: i64| TestSample(stack, ms * 1_000_000, &[], 0);
    let before = file("before.pb", &[sample(&["main", "price"], 100), sample(&["main", "old"], 40)]);
    let after = file("after.pb", &[sample(&["main", "price"], 250), sample(&["main", "new"], 30)]);
    let done = spanprof(&["diff", &before, &after, "--all"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let columns: Vec<Vec<&str>> = done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(columns[0].join(" "), "wall: 140 ms → 280 ms, +140 ms (+100.0%)");
    let row = |nth: usize| columns[nth].join(" ");
    assert_eq!(row(2), "100 ms 250 ms +150 ms +150.0% +20.1 … +420.5% +150 ms price /srv/cart/app.py");
    assert_eq!(row(3), "40.0 ms 0 -40.0 ms gone - -40.0 ms old /srv/cart/app.py");
    assert_eq!(row(4), "0 30.0 ms +30.0 ms new - +30.0 ms new /srv/cart/app.py");
    assert_eq!(row(5), "0 0 0 - - +140 ms main /srv/cart/app.py");
    let by_line = spanprof(&["diff", &before, &after, "--by", "line", "--sort", "cum", "-n", "1", "--json", "--all"]);
    assert!(by_line.stdout.contains(r#""line":12"#) && by_line.stdout.contains(r#""changed":4"#), "{by_line:?}");
    let shares = spanprof(&["diff", &before, &after, "--normalize"]);
    assert!(shares.stdout.contains("1 without a difference"), "main is 100 % of both: {shares:?}");
    let same = spanprof(&["diff", &before, &before]);
    assert!(same.stdout.ends_with("3 without a difference\n"), "{same:?}");
}

#[test]
fn a_comparison_names_what_a_source_lacks() {
    let home = TestDirectory::new();
    let wall = home.file("wall.pb", &encoded(&window("cart", "wall", &[TestSample(&["main"], 5, &[], 0)])));
    let cpu = home.file("cpu.pb", &encoded(&shop("cart")));
    let done = spanprof(&["diff", &wall, &cpu]);
    assert_eq!((done.code, done.stdout.as_str()), (1, ""));
    assert!(done.stderr.contains("cpu.pb has no samples of the type wall"), "{done:?}");
    assert!(done.stderr.contains("\"cart\" (cpu)"), "{done:?}");
    let hints = [
        ("inuse_space", "available: \"cart\" (cpu); choose one with --type, or profile with heap=true"),
        ("delay", "or profile with lock=true"),
        ("wall", "or profile with wall=true"),
        ("event_loop_lag", "choose one with --type\n"),
    ];
    for (type_name, hint) in hints {
        for sides in [["diff", &cpu, &cpu], ["diff", &cpu, &wall]] {
            let done = spanprof(&[&sides[..], &["--type", type_name]].concat());
            assert_eq!((done.code, done.stdout.as_str()), (1, ""));
            assert!(done.stderr.contains(&format!("cpu.pb has no samples of the type {type_name}")), "{done:?}");
            assert!(done.stderr.contains(hint), "{done:?}");
        }
    }
}

#[test]
fn old_objects_in_use_are_compared_with_a_window_without_any() {
    let home = TestDirectory::new();
    let (new, old) = ([("age", "new")], [("age", "old")]);
    let sample = |name, bytes, age| TestSample(name, bytes, age, 0);
    let leak: &[&str] = &["main", "leak"];
    let request: &[&str] = &["main", "request"];
    let early = [sample(leak, 10 << 20, &new), sample(request, 50 << 20, &new)];
    let late = [sample(leak, 30 << 20, &old), sample(leak, 10 << 20, &new), sample(request, 50 << 20, &new)];
    let file =
        |name: &str, samples: &[TestSample<'_>]| home.file(name, &encoded(&window("cart", "inuse_space", samples)));
    let (early, late) = (file("early.pb", &early), file("late.pb", &late));
    let done = spanprof(&["diff", &early, &late, "--type", "inuse_space", "--label", "age=old"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    assert!(
        done.stdout.contains("+31.5 ms     new                   -   +31.5 ms  leak")
            && !done.stdout.contains("request"),
        "{done:?}"
    );
    let reversed = spanprof(&["diff", &late, &early, "--label", "age=old", "--json"]);
    assert!(reversed.stdout.contains(r#""comparison_total":0"#), "{reversed:?}");
    let top = spanprof(&["top", &late, "--label", "age=old", "--json"]);
    assert_eq!(number(&top.stdout, "total"), 30 << 20);
    let misspelt = spanprof(&["diff", &early, &late, "--label", "service.name=cat"]);
    assert!(misspelt.code == 1 && misspelt.stderr.contains("did you mean `service.name=cart`?"), "{misspelt:?}");
    for arguments in [&["diff", &early, &early, "--label", "age=old"][..], &["top", &early, "--label", "age=old"]] {
        let none = spanprof(arguments);
        assert_eq!((none.code, none.stdout.as_str()), (1, ""));
        assert!(none.stderr.contains("early.pb match"), "{none:?}");
    }
}

#[test]
fn memory_is_listed_and_compared_by_type() {
    let home = TestDirectory::new();
    let sample = |stack, bytes| TestSample(stack, bytes, &[], 0);
    let [bought, restored]: [&[&str]; 2] = [&["main", "buy", "Cart <type>"], &["main", "restore", "Cart <type>"]];
    let buffers = sample(&["main", "buy"], 5_000_000);
    let file = |name: &str, samples: &[TestSample<'_>]| {
        home.file(name, &pprof::encode(&window("cart", "inuse_space", samples)))
    };
    let early = file("early.pb.gz", &[sample(bought, 10_000_000), sample(restored, 5_000_000), buffers]);
    let late = file("late.pb.gz", &[sample(bought, 40_000_000), sample(&["main", "dict <type>"], 20_000_000)]);
    let top = spanprof(&["top", &early, "--by", "type"]);
    let rows = "    flat  flat%  type\n 15.0 ms  75.0%  Cart\n 5.00 ms  25.0%  (no type)\n";
    assert_eq!((top.stdout, top.stderr), (format!("inuse_space: 20.0 ms in 3 stacks, 2 types\n{rows}"), String::new()));
    let focused = spanprof(&["top", &early, "--by", "type", "--focus", "restore", "--json"]);
    assert_eq!((number(&focused.stdout, "total"), number(&focused.stdout, "functions")), (5_000_000, 1));
    let diff = spanprof(&["diff", &early, &late, "--by", "type", "--all"]).stdout;
    let rows: Vec<String> = diff.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for (start, end) in [
        ("15.0 ms 40.0 ms +25.0 ms", "Cart <type>"),
        ("0 20.0 ms +20.0 ms new", "dict <type>"),
        ("5.00 ms 0 -5.00 ms gone", "(no type)"),
    ] {
        assert!(rows.iter().any(|row| row.starts_with(start) && row.ends_with(end)), "{diff}");
    }
}

#[test]
fn windows_of_unequal_length_are_noted_unless_shares_are_compared() {
    let home = TestDirectory::new();
    let parts = |starts: &[u64]| {
        starts
            .iter()
            .map(|start_s| window_at("cart", "wall", start_s * 1_000_000_000, &[TestSample(&["main"], 5, &[], 0)]))
            .collect::<Vec<_>>()
    };
    let short = home.file("short.pb", &encoded(&parts(&[1_700_000_000])[0]));
    let long =
        home.file("long.pb", &encoded(&spanprof_profile::transform::merge(&parts(&[1_700_000_000, 1_700_000_010]))));
    let note = "the baseline covers 10 s, the comparison 20 s";
    assert!(spanprof(&["diff", &short, &long]).stderr.contains(note));
    assert_eq!(spanprof(&["diff", &short, &long, "--normalize"]).stderr, "");
}

/// A CPU window of 20 functions of 2,000 samples each; the first has `factor` times as many.
fn shop_window(version: &str, factor: f64) -> ProfilesData {
    let names: Vec<String> = (0..20).map(|number| format!("function_{number}")).collect();
    let stacks: Vec<[&str; 2]> = names.iter().map(|name| ["main", name.as_str()]).collect();
    let samples: Vec<_> = stacks
        .iter()
        .enumerate()
        .map(|(number, stack)| {
            let count = if number == 0 { (2_000.0 * factor) as i64 } else { 2_000 };
            TestSample(stack, count * PERIOD_NS, &[], 0)
        })
        .collect();
    let mut data = window("shop", "cpu", &samples);
    data.resources[0].resource.push(Attribute::string("service.version", version));
    data
}

#[test]
fn the_gate_fails_on_a_regression_only() {
    let home = TestDirectory::new();
    let file = |version: &str, factor| home.file(&format!("{version}.pb"), &encoded(&shop_window(version, factor)));
    let (baseline, same, slower) = (file("1.0", 1.0), file("1.1", 1.02), file("1.2", 1.5));
    let passed = spanprof(&["diff", &baseline, &same, "--fail-over", "5%"]);
    assert_eq!((passed.code, passed.stderr.as_str()), (0, ""), "{passed:?}");
    assert!(
        passed.stdout.ends_with("passed: no function's share is shown to have grown by more than 5 %\n"),
        "{passed:?}"
    );
    let failed = spanprof(&["diff", &baseline, &slower, "--fail-over", "5%"]);
    assert_eq!(failed.code, 1);
    assert!(failed.stdout.contains("function_0 ") && !failed.stdout.contains("function_1 "), "{failed:?}");
    assert!(failed.stdout.ends_with("failed: the share of 1 function grew by more than 5 %\n"), "{failed:?}");
    assert_eq!(spanprof(&["diff", &baseline, &slower, "--fail-over", "50"]).code, 0, "it grew by less");
    assert_eq!(spanprof(&["diff", &slower, &baseline, "--fail-over", "0"]).code, 0, "an improvement is no regression");
    let json = spanprof(&["diff", &baseline, &slower, "--fail-over", "5%", "--json"]);
    assert_eq!(
        (json.code, json.stdout.matches(r#""significant":true"#).count()),
        (1, 2),
        "row and regression: {json:?}"
    );
    let markdown = spanprof(&["diff", &baseline, &slower, "--fail-over", "5%", "--markdown"]);
    assert_eq!(markdown.code, 1);
    assert!(markdown.stdout.contains("| function\\_0  /srv/shop/app.py |"), "{markdown:?}");
}

/// Files of five runs of the shop, each of 20 s of CPU time and `factor` as much in `price` and in everything.
fn five_runs(home: &TestDirectory, name: &str, factor_of_price: f64, factor: f64) -> String {
    std::fs::create_dir(home.path().join(name)).unwrap();
    for run in 0..5 {
        let varied = |ms: f64| (ms * factor * (1.0 + 0.004 * f64::from(run))) as i64 * PERIOD_NS;
        let (cart, pay) = ([("endpoint", "/cart")], [("endpoint", "/pay")]);
        let mut data = window(
            "shop",
            "cpu",
            &[
                TestSample(&["main", "price"], varied(600.0 * factor_of_price), &cart, 0),
                TestSample(&["main", "render"], varied(900.0), &cart, 0),
                TestSample(&["main", "log"], varied(500.0), &pay, 0),
            ],
        );
        data.resources[0].resource[1] = Attribute::int("process.pid", i64::from(run));
        home.file(&format!("{name}/{run}.pb"), &encoded(&data));
    }
    home.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn the_gate_on_costs_fails_where_shares_are_equal() {
    let home = TestDirectory::new();
    let [before, slower, price] = [("before", 1.0, 1.0), ("slower", 1.0, 1.5), ("price", 1.2, 1.0)]
        .map(|(name, price, all)| five_runs(&home, name, price, all));
    let gate = |comparison: &str, more: &[&str]| {
        spanprof(&[&["diff", &before, comparison, "--fail-over", "5%"], more].concat())
    };
    assert_eq!(gate(&slower, &[]).code, 0, "all shares are equal");
    let failed = gate(&slower, &["--per", "run"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stdout.starts_with("cpu per run: 20.2 s → 30.2 s, +10.1 s (+50.0%, +4"), "{failed:?}");
    assert!(failed.stdout.contains("grew by more than 5 %: the total, "), "{failed:?}");
    let failed = gate(&price, &["--per", "run"]);
    assert!(failed.code == 1 && failed.stdout.ends_with("more than 5 %: the total, price\n"), "{failed:?}");
    let failed = gate(&price, &["--per", "endpoint", "--markdown"]);
    assert!(
        failed.code == 1 && failed.stdout.contains("endpoint=/cart") && !failed.stdout.contains("/pay"),
        "{failed:?}"
    );
    let json = gate(&price, &["--per", "request", "--requests", "1000,1200", "--json"]);
    assert_eq!((json.code, json.stdout.contains(r#""per":"request""#)), (0, true), "a sixth more requests: {json:?}");
    assert_eq!(gate(&before, &["--per", "run"]).code, 0);
    let one = home.file("one.pb", &encoded(&shop_window("1.0", 1.0)));
    let refused = gate(&one, &["--per", "run"]);
    assert!(
        refused.code == 2 && refused.stderr.contains("5 processes are needed on each side, got 5 and 1"),
        "{refused:?}"
    );
    assert!(gate(&before, &["--per", "request"]).stderr.contains("--requests BASELINE,COMPARISON"));
}

#[test]
fn runs_of_both_sides_are_repeated_until_their_comparison_decides() {
    let home = TestDirectory::new();
    let [before, price] = [("before", 1.0), ("price", 1.2)].map(|(name, factor)| five_runs(&home, name, factor, 1.0));
    let side = home.path().join("side").display().to_string();
    let installed = |runs: &str| format!("echo {runs} > {side}");
    let run = format!("cp $(cat {side})/$(($(basename $SPANPROF_FILE_DIRECTORY) - 1)).pb $SPANPROF_FILE_DIRECTORY/");
    let gate = |candidate: &str, more: &[&str], run: &str| {
        let sides = ["gate", "--baseline", &installed(&before), "--candidate", &installed(candidate)];
        spanprof(&[&sides[..], more, &["--", "sh", "-c", run]].concat())
    };
    let failed = gate(&price, &["--fail-over", "2%"], &run);
    assert!(failed.code == 1 && failed.stdout.contains("price"), "{failed:?}");
    assert!(failed.stderr.contains("candidate, run 5 of") && !failed.stderr.contains("run 6 of"), "{failed:?}");
    let passed = gate(&before, &["--per", "run"], &run);
    assert!(
        passed.code == 0 && passed.stdout.contains("passed: ") && !passed.stderr.contains("run 6 of"),
        "{passed:?}"
    );
    let without = gate(&price, &[], "true");
    assert!(without.code == 2 && without.stderr.contains("the run of the baseline wrote no profile"), "{without:?}");
    assert_eq!(gate(&price, &[], "exit 3").code, 2);
}

#[test]
fn a_gate_that_passes_names_what_seems_to_have_grown() {
    let home = TestDirectory::new();
    let file = |name: &str, count: i64| {
        let rest = TestSample(&["main", "rest"], (9_000 - count) * PERIOD_NS, &[], 0);
        home.file(
            name,
            &encoded(&window("shop", "cpu", &[TestSample(&["main", "price"], count * PERIOD_NS, &[], 0), rest])),
        )
    };
    let done = spanprof(&["diff", &file("a.pb", 1_000), &file("b.pb", 1_100), "--fail-over", "0%"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("not decided: price (+10.0%, +1.5 … +19.2%); a gate fails if"), "{done:?}");
}

#[test]
fn a_wrong_selector_is_named_with_its_side_and_what_there_is() {
    let home = TestDirectory::new();
    let source = home.file("shop.pb", &encoded(&shop_window("1.0", 1.0)));
    let stderr = |comparison: &str| {
        spanprof(&["diff", &source, "--baseline", "shop{service.version=1.0}", "--comparison", comparison]).stderr
    };
    for (selector, words) in [
        (
            "shop{service.version=9}",
            ["the comparison: no samples in", "no sample has `service.version=9`", "service.version = 1.0"],
        ),
        (
            "shop{version=1.0}",
            ["the comparison: no samples in", "no sample has the label `version`", "service.version"],
        ),
        ("shpo", ["the comparison: no samples in", "there is no service \"shpo\"", "did you mean \"shop\"?"]),
    ] {
        let text = stderr(selector);
        assert!(words.iter().all(|word| text.contains(word)), "{selector}: {text}");
    }
    let text = spanprof(&["diff", "--baseline", "a", "--comparison", "b", "--from", "nonsense"]).stderr;
    assert!(!text.contains("required arguments"), "the source has a default: {text}");
}

#[test]
fn new_and_vanished_call_paths_are_listed_and_drawn() {
    let home = TestDirectory::new();
    let samples = |stack, count: i64| TestSample(stack, count * PERIOD_NS, &[], 0);
    let shared = || [samples(&["main", "serve", "price"], 9_000), samples(&["main", "serve", "log"], 900)];
    let file = |name: &str, more: [TestSample<'_>; 3]| {
        home.file(name, &encoded(&window("shop", "cpu", &shared().into_iter().chain(more).collect::<Vec<_>>())))
    };
    let before = file(
        "before.pb",
        [
            samples(&["main", "serve", "legacy", "parse"], 60),
            samples(&["main", "serve", "rare"], 3),
            samples(&["main", "log"], 1),
        ],
    );
    let after = file(
        "after.pb",
        [
            samples(&["main", "serve", "price", "retry", "sleep"], 40),
            samples(&["main", "serve", "price", "retry", "retry"], 30),
            samples(&["main", "log"], 2),
        ],
    );
    let graph = home.path().join("diff.html").display().to_string();
    let done = spanprof(&["diff", &before, &after, "-o", &graph]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.starts_with(&format!("spanprof: wrote {graph} (")), "{done:?}");
    let new = "new call paths, with their callees:\n    weight    samples\n    700 ms         70  main > serve > price > retry\n";
    let vanished = "vanished call paths, with their callees:\n    weight    samples\n    600 ms         60  main > serve > legacy\n";
    assert!(done.stdout.contains(&format!("{new}{vanished}tested")), "{done:?}");
    assert!(!done.stdout.contains("rare"), "3 samples may be chance: {done:?}");
    assert!(spanprof(&["diff", &before, &after, "--all"]).stdout.contains("main > serve > rare"));
    let json = spanprof(&["diff", &before, &after, "--json"]).stdout;
    let expected = r#""new_paths":[{"functions":["main","serve","price","retry"],"cum":700000000,"samples":70.0,"significant":true}]"#;
    assert!(json.contains(expected), "{json}");
    let markdown = spanprof(&["diff", &before, &after, "--markdown"]).stdout;
    assert!(
        markdown.contains("Vanished call paths") && markdown.contains(r"| 600 ms | main \> serve \> legacy |"),
        "{markdown}"
    );
    let page = std::fs::read_to_string(&graph).unwrap();
    assert!(page.contains(r#""diff":{"significant":["#) && page.contains("DiffFlamegraph"), "a page of the comparison");
    let same = spanprof(&["diff", &before, &before, "--all"]);
    assert!(!same.stdout.contains("call paths"), "{same:?}");
}

#[test]
fn the_gate_exits_with_two_when_nothing_can_be_concluded() {
    let home = TestDirectory::new();
    let baseline = home.file("a.pb", &encoded(&shop_window("1.0", 1.0)));
    let small = home.file("b.pb", &encoded(&window("shop", "cpu", &[TestSample(&["main"], 900 * PERIOD_NS, &[], 0)])));
    for (arguments, words) in [
        (&[baseline.as_str(), small.as_str()][..], "the comparison has 900 samples, at least 1000 are needed"),
        (&[&baseline, "/nonexistent.pb"], "cannot read /nonexistent.pb"),
        (&[&baseline, &baseline, "--type", "wall"], "no samples"),
        (&[&baseline, &baseline, "--sort", "cum"], "--sort cum"),
    ] {
        let done = spanprof(&[&["diff", "--fail-over", "5%"], arguments].concat());
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        assert!(done.stderr.contains(words), "{done:?}");
    }
}

#[test]
fn two_versions_in_one_store_are_compared_by_selectors() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for (version, factor) in [("1.2", 1.0), ("1.3", 1.5), ("1.3", 1.5)] {
        assert_eq!(post(&serve.http, &[], &encoded(&shop_window(version, factor))).status, 200);
    }
    let selected = ["--baseline", "shop{service.version=1.2}", "--comparison", "shop{service.version=1.3}"];
    let compare =
        |source: &str, more: &[&str]| spanprof(&[&["diff", source, "--normalize"], &selected[..], more].concat());
    for source in [serve.url(), home.path().to_str().unwrap().to_owned()] {
        let done = compare(&source, &["--time-range", "1h"]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
        assert!(done.stdout.contains("20.0 s     29.3 s") && done.stdout.contains("function_0 "), "{done:?}");
        assert!(!done.stdout.contains("function_1 "), "{done:?}");
    }
    let none = compare(&serve.url(), &["--time-range", "1ns"]);
    assert_eq!(none.code, 1);
    assert!(none.stderr.contains("\"shop\" (cpu)"), "{none:?}");
    let wrong = spanprof(&["diff", &serve.url(), "--baseline", "shop{x", "--comparison", "shop"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("--baseline: expected a selector"), "{wrong:?}");
}

#[test]
fn the_server_returns_the_comparison_of_the_command_and_its_tree() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for (version, factor) in [("1.2", 1.0), ("1.3", 1.5)] {
        assert_eq!(post(&serve.http, &[], &encoded(&shop_window(version, factor))).status, 200);
    }
    let query = "/api/diff?service=shop&label=service.version%3D1.3&normalize=1";
    let found = get(&serve.http, &format!("{query}&baseline=%7Bservice.version%3D1.2%7D"));
    assert_eq!(found.status, 200, "{}", found.text());
    let selectors = ["--baseline", "shop{service.version=1.2}", "--comparison", "shop{service.version=1.3}"];
    let command =
        spanprof(&[&["diff", &serve.url(), "--normalize", "--json", "--all", "-n", "0"], &selectors[..]].concat());
    let of_command: serde_json::Value = serde_json::from_str(&command.stdout).unwrap();
    let mut of_server: serde_json::Value = serde_json::from_str(&found.text()).unwrap();
    let mut take = |name: &str| of_server.as_object_mut().unwrap().remove(name).unwrap();
    assert_eq!(take("windows_left_out"), 0);
    let tree = take("tree");
    assert_eq!([&tree["type"], &take("folded")["type"]], ["cpu", "cpu"]);
    assert_eq!(tree["diff"]["significant"].as_array().unwrap()[..4], [0, 0, 1, 0], "function_0 grew: {tree}");
    assert_eq!(of_server, of_command);
    let none = get(&serve.http, &format!("{query}&baseline_from=-2h&baseline_to=-1h"));
    assert!(none.text().contains("nothing can be concluded: one side has no samples"), "{}", none.text());
    for wrong in ["baseline=shop%7Bx", "baseline_from=yesterday", "base=1"] {
        assert_eq!(get(&serve.http, &format!("{query}&{wrong}")).status, 400, "{wrong}");
    }
}
