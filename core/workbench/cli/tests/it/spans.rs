//! `spanprof spans`: traces, spans and endpoints, and one span against its endpoint.

use serde_json::json;
use spanprof_profile::{ProfilesData, Value};

use crate::client::{get, post};
use crate::fixture::{
    encoded, ids, now_ns, number, spanprof, window, window_at, Finished, Serve, TestDirectory, TestSample,
};

const CART: &[(&str, &str)] = &[("http.request.method", "GET"), ("http.route", "/cart")];
const PAY: &[(&str, &str)] = &[("http.request.method", "POST"), ("http.route", "/pay")];
const MS: i64 = 1_000_000;

fn row<'o>(done: &'o Finished, words: &str) -> &'o str {
    done.stdout.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no {words}: {done:?}"))
}

/// Two requests of /cart, one of /pay, and work without a span: CPU time and waits.
fn requests() -> [ProfilesData; 2] {
    let cpu = [
        // Before the route is known.
        TestSample(&["main", "parse"], 20 * MS, &[], 1),
        TestSample(&["main", "cart"], 300 * MS, CART, 1),
        TestSample(&["main", "cart"], 100 * MS, CART, 2),
        TestSample(&["main", "pay"], 200 * MS, PAY, 3),
        TestSample(&["main", "idle"], 380 * MS, &[], 0),
    ];
    let waits =
        [TestSample(&["main", "cart", "[lock]"], 5 * MS, CART, 1), TestSample(&["main", "pay"], 900 * MS, PAY, 3)];
    [window("shop", "cpu", &cpu), window("shop", "off_cpu", &waits)]
}

#[test]
fn spans_traces_and_endpoints_are_listed_with_every_type() {
    let home = TestDirectory::new();
    let [cpu, waits] = requests();
    let files = [home.file("cpu.pb", &encoded(&cpu)), home.file("waits.pb", &encoded(&waits))];
    let spans = |more: &[&str]| spanprof(&[&["spans", &files[0], &files[1]], more].concat());
    let by_endpoint = spans(&["--by", "endpoint"]);
    assert_eq!((by_endpoint.code, by_endpoint.stderr.as_str()), (0, ""), "{by_endpoint:?}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(by_endpoint.stdout.lines().next().unwrap()),
        "3 spans of 3 endpoints: cpu 1.00 s, 62.0% in spans; off_cpu 905 ms, 100.0% in spans"
    );
    assert_eq!(words(row(&by_endpoint, "/cart")), "420 ms 42.0% - 5.00 ms 42 2 GET /cart shop");
    assert_eq!(words(row(&by_endpoint, "/pay")), "200 ms 20.0% - 900 ms 20 1 POST /pay shop");
    assert_eq!(words(row(&by_endpoint, "(no endpoint)")), "380 ms 38.0% - 0 38 0 (no endpoint) shop");
    let by_wait = spans(&["--sort", "wait", "-n", "1"]);
    let (trace, span) = ids(3);
    assert!(row(&by_wait, "/pay").contains(&format!("{}  {}", hex::encode(trace), hex::encode(span))), "{by_wait:?}");
    assert!(!by_wait.stdout.contains("/cart"), "{by_wait:?}");
    let by_trace = spans(&["--by", "trace", "--json", "--label", "http.route=/cart"]);
    assert_eq!((number(&by_trace.stdout, "cpu_ns"), number(&by_trace.stdout, "count")), (300 * MS, 2), "{by_trace:?}");
    assert_eq!(number(&by_trace.stdout, "wait_ns"), 5 * MS);
    let quantiles = spans(&["--by", "endpoint", "--json"]).stdout;
    assert!(
        quantiles.contains(r#""cpu":{"weight":420000000,"samples":42,"p50":100000000,"p99":320000000}"#),
        "{quantiles}"
    );
    let named = spans(&["--by", "endpoint", "--endpoint-label", "http.request.method"]);
    assert!(words(row(&named, "GET")).starts_with("420 ms"), "{named:?}");
    let unlinked = spans(&[
        "--by",
        "trace",
        "--label",
        "http.route!=/cart",
        "--label",
        "http.route!=/pay",
        "--span-id",
        "0000000000000000",
    ]);
    assert!(unlinked.code == 1 && unlinked.stderr.contains("belongs to a span"), "{unlinked:?}");
    let none = spans(&["--service", "other"]);
    assert_eq!((none.code, none.stdout.as_str()), (1, ""));
}

/// 40 requests of /cart with 10 samples in `price` and 2 in `render`, give or take one. Request 7 also has 12 in `retry`.
fn slow_request() -> ProfilesData {
    let mut samples = Vec::new();
    for request in 1..=40 {
        let varied = |count: i64| (count + request as i64 % 3 - 1) * 10 * MS;
        samples.push(TestSample(&["main", "cart", "price"], varied(10), CART, request));
        samples.push(TestSample(&["main", "cart", "render"], varied(2), CART, request));
        samples.push(TestSample(&["main", "pay", "charge"], varied(30), PAY, 100 + request));
    }
    samples.push(TestSample(&["main", "cart", "price", "retry"], 120 * MS, CART, 7));
    window("shop", "cpu", &samples)
}

#[test]
fn the_extra_function_of_a_slow_span_is_found_in_a_file_and_in_a_server() {
    let home = TestDirectory::new();
    let file = home.file("cpu.pb", &encoded(&slow_request()));
    let store = TestDirectory::new();
    let serve = Serve::start(store.path(), &[]);
    assert_eq!(post(&serve.http, &[], &encoded(&slow_request())).status, 200);
    let (trace, span) = ids(7);
    let (trace, span) = (hex::encode(trace), hex::encode(span));
    for source in [file.clone(), serve.url()] {
        for subject in [["--span-id", &span], ["--trace-id", &trace]] {
            let done = spanprof(&[&["spans", &source, "--against-endpoint"], &subject[..]].concat());
            assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
            assert!(done.stdout.contains("of GET /cart  shop\n"), "{done:?}");
            assert!(done.stdout.contains("\ncpu: 240 ms, mean of the 39 others: 120 ms"), "{done:?}");
            let words = row(&done, "retry").split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.starts_with("120 ms 0 +120 ms") && words.contains(" 0 of 39 retry"), "{words}");
            assert!(!done.stdout.contains("price") && !done.stdout.contains("charge"), "only the extra one: {done:?}");
            assert!(done.stdout.contains("24 samples against"), "{done:?}");
        }
    }
    let usual = spanprof(&["spans", &file, "--against-endpoint", "--span-id", &hex::encode(ids(8).1), "--json"]);
    assert!(usual.stdout.contains(r#""rows":[]"#) && usual.stdout.contains(r#""not_concluded":null"#), "{usual:?}");
    let with_callees =
        spanprof(&["spans", &file, "--against-endpoint", "--span-id", &span, "--compare", "cum", "--all"]);
    assert!(row(&with_callees, "price").trim_start().starts_with("220 ms"), "with its callee: {with_callees:?}");
}

#[test]
fn a_comparison_with_an_endpoint_reports_what_it_lacks() {
    let home = TestDirectory::new();
    let file = home.file(
        "cpu.pb",
        &encoded(&window(
            "shop",
            "cpu",
            &[
                TestSample(&["main"], 50 * MS, &[], 1),
                TestSample(&["main"], 50 * MS, PAY, 2),
                TestSample(&["main", "small"], 10 * MS, CART, 3),
                TestSample(&["main", "other"], 10 * MS, CART, 4),
            ],
        )),
    );
    let compare = |more: &[&str]| spanprof(&[&["spans", &file, "--against-endpoint"], more].concat());
    let span = |request| hex::encode(ids(request).1);
    for (request, words) in [(1, "has no endpoint"), (9, "has no samples of the span")] {
        let done = compare(&["--span-id", &span(request)]);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""));
        assert!(done.stderr.contains(words), "{done:?}");
    }
    for (request, words) in [(2, "it is the only one of its endpoint"), (3, "no function has 3 samples")] {
        let done = compare(&["--span-id", &span(request)]);
        assert_eq!(done.code, 0);
        assert!(done.stdout.contains(&format!("nothing can be concluded: {words}")), "{done:?}");
    }
    let other_type = compare(&["--span-id", &span(2), "--type", "off_cpu"]);
    assert_eq!(other_type.code, 1);
    assert!(other_type.stderr.contains("no samples of the type off_cpu"), "{other_type:?}");
    assert_eq!(compare(&[]).code, 2);
}

/// 40 requests of /cart that wait: 60 ms each, request 7 1.8 s more. The interval of a second window is longer.
fn waiting_requests() -> [ProfilesData; 2] {
    let waits = |requests: std::ops::RangeInclusive<u64>| -> Vec<TestSample<'static>> {
        let mut samples: Vec<_> =
            requests.clone().map(|request| TestSample(&["main", "cart", "query"], 60 * MS, CART, request)).collect();
        if requests.contains(&7) {
            samples.push(TestSample(&["main", "cart", "replica"], 1_800 * MS, CART, 7));
        }
        samples
    };
    let mut lowered = window("shop", "wall", &waits(21..=40));
    for profile in lowered.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        profile.period *= 3;
    }
    [window("shop", "wall", &waits(1..=20)), lowered]
}

#[test]
fn a_span_that_only_waits_is_compared_by_its_waits_at_changing_intervals() {
    let home = TestDirectory::new();
    let cpu = window("shop", "cpu", &[TestSample(&["main", "cart"], 50 * MS, CART, 99)]);
    let [full, lowered] = waiting_requests();
    let files = [("cpu.pb", &cpu), ("full.pb", &full), ("lowered.pb", &lowered)];
    let files = files.map(|(name, data)| home.file(name, &encoded(data)));
    let span = hex::encode(ids(7).1);
    let compare = |files: &[&str], more: &[&str]| {
        spanprof(&[&["spans"], files, &["--against-endpoint", "--span-id", &span], more].concat())
    };
    // The span with CPU time only is one of the others, too.
    for (files, others) in [(vec![&*files[0], &files[1], &files[2]], 40), (vec![&*files[1], &files[2]], 39)] {
        let done = compare(&files, &[]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.stderr.contains("compared by wall, which has most of its time (--type selects"), "{done:?}");
        assert!(row(&done, "replica").contains(&format!("0 of {others}")), "{done:?}");
        assert!(!done.stdout.contains("nothing can be concluded"), "{done:?}");
    }
    let by_cpu = compare(&[&files[0], &files[1]], &["--type", "cpu"]);
    assert_eq!(by_cpu.code, 1);
    assert!(by_cpu.stderr.contains("--type selects another type, such as wall"), "{by_cpu:?}");
}

#[test]
fn a_span_of_a_virtual_thread_that_waits_for_a_lock_is_compared_by_its_delay() {
    let home = TestDirectory::new();
    let waits = |weight, request| [TestSample(&["main", "cart"], weight, CART, request)];
    let files = [("cpu", waits(5 * MS, 1)), ("off_cpu", waits(10 * MS, 2)), ("delay", waits(1_500 * MS, 1))];
    let files =
        files.map(|(name, samples)| home.file(&format!("{name}.pb"), &encoded(&window("shop", name, &samples))));
    let span = hex::encode(ids(1).1);
    let done = spanprof(
        &[&["spans"], &files.each_ref().map(String::as_str)[..], &["--against-endpoint", "--span-id", &span]].concat(),
    );
    assert!(done.stdout.contains("\ndelay: 1.50 s, mean of the 1 other"), "{done:?}");
    // With callees, since the leaf is the lock.
    assert!(row(&done, "main").trim_start().starts_with("1.50 s"), "{done:?}");
    let on_thread = home.file("thread.pb", &encoded(&window("shop", "off_cpu", &waits(1_400 * MS, 1))));
    let done = spanprof(&["spans", &files[0], &on_thread, &files[2], "--against-endpoint", "--span-id", &span]);
    assert!(done.stdout.contains("\noff_cpu: 1.40 s"), "{done:?}");
}

#[test]
fn a_span_that_awaits_calls_is_compared_by_them_and_its_waits_are_known() {
    let home = TestDirectory::new();
    let cpu = window("shop", "cpu", &[TestSample(&["main", "cart"], 50 * MS, CART, 1)]);
    let calls = |ms, request| TestSample(&["GET stock"], ms * MS, CART, request);
    let awaited = window("shop", "awaited", &[calls(2_500, 1), calls(20, 2)]);
    let files = [home.file("cpu.pb", &encoded(&cpu)), home.file("awaited.pb", &encoded(&awaited))];
    let spans = |more: &[&str]| spanprof(&[&["spans", &files[0], &files[1]], more].concat());
    let done = spans(&["--against-endpoint", "--span-id", &hex::encode(ids(1).1)]);
    assert!(done.stderr.contains("compared by awaited, which has most of its time"), "{done:?}");
    assert!(row(&done, "GET stock").trim_start().starts_with("2.50 s"), "{done:?}");
    let listed = spans(&["--sort", "wait", "-n", "1"]);
    assert!(listed.stderr.is_empty() && listed.stdout.contains("wait is awaited\n"), "{listed:?}");
    assert!(row(&listed, "/cart").contains("2.50 s"), "{listed:?}");
}

#[test]
fn the_innermost_function_of_own_code_is_the_first_row_of_a_wait_and_stubs_of_the_java_vm_are_none() {
    let home = TestDirectory::new();
    let stack = ["main", "addOrder", "readStock", "[monitorenter_nofpu Runtime1 stub]", "[lock]"];
    let waits = [
        TestSample(&stack, 900 * MS, CART, 1),
        TestSample(&stack, 100 * MS, CART, 2),
        TestSample(&["main", "idle", "[lock]"], 40 * MS, CART, 2),
    ];
    let file = home.file("waits.pb", &encoded(&window("shop", "off_cpu", &waits)));
    let received = TestDirectory::new();
    let serve = Serve::start(received.path(), &[]);
    assert_eq!(post(&serve.http, &[], &std::fs::read(&file).unwrap()).status, 200);
    let span = hex::encode(ids(1).1);
    let done = spanprof(&["spans", &file, "--against-endpoint", "--span-id", &span, "--json", "--all"]).stdout;
    let local: serde_json::Value = serde_json::from_str(&done).unwrap();
    let served = get(&serve.http, &format!("/api/request?span_id={span}")).text();
    let served: serde_json::Value = serde_json::from_str(&served).unwrap();
    for rows in [&local["rows"], &served["differences"][0]["rows"]] {
        let names: Vec<_> = rows.as_array().unwrap().iter().filter_map(|row| row["function"].as_str()).collect();
        assert_eq!(names, ["readStock", "addOrder", "main", "[lock]", "idle"], "{rows}");
    }
}

#[test]
fn spans_without_durations_are_sorted_by_their_time_and_missing_waits_are_named() {
    let home = TestDirectory::new();
    let [cpu, waits] = requests();
    let files = [home.file("cpu.pb", &encoded(&cpu)), home.file("waits.pb", &encoded(&waits))];
    let done = spanprof(&["spans", &files[0], &files[1], "--sort", "duration", "-n", "1"]);
    assert!(done.stderr.contains("durations are unknown"), "{done:?}");
    assert!(row(&done, "/pay").contains("900 ms"), "{done:?}");
    let by_wait = spanprof(&["spans", &files[0], "--sort", "wait"]);
    assert!(by_wait.stderr.contains("waits are unknown: SPANPROF_PROFILES=all"), "{by_wait:?}");
}

#[test]
fn the_number_of_samples_of_measured_waits_is_no_nanoseconds() {
    let home = TestDirectory::new();
    let [_, mut waits] = requests();
    for profile in waits.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        profile.period = 1;
    }
    let file = home.file("waits.pb", &encoded(&waits));
    let done = spanprof(&["spans", &file, "--sort", "wait", "--json"]);
    // 900 ms are at least four observations of at most 250 ms.
    let result: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(result["rows"][0]["samples"], 4, "{done:?}");
}

#[test]
fn ended_requests_and_errors_are_counted_by_endpoint_and_failed_spans_are_marked() {
    let home = TestDirectory::new();
    const ENDED: &[(&str, &str)] = &[("endpoint", "GET /cart")];
    // 37 requests of 10 ms, one of 300 ms, and the failed one of 1.2 s.
    let count = |type_name, counts: &[TestSample<'_>]| {
        let mut data = window("shop", type_name, counts);
        for sample in data.resources.iter_mut().flat_map(|it| &mut it.profiles).flat_map(|it| &mut it.samples) {
            let mut labels = data.dictionary.get_attribute_set(sample.attributes).to_vec();
            let duration_ms = if !sample.link.is_empty() {
                1_200
            } else if sample.total() == 1 {
                300
            } else {
                10
            };
            labels.push(data.dictionary.attribute("duration", Value::Int(duration_ms * MS), "ns"));
            sample.attributes = data.dictionary.attribute_set(&labels);
        }
        for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            (profile.sample_type.unit, profile.period_type.unit, profile.period) = ("count".into(), "count".into(), 1);
        }
        data
    };
    let ended = [37, 1].map(|count| TestSample(&["[request]"], count, ENDED, 0));
    let failed = [TestSample(&["[request]"], 1, ENDED, 2)];
    let windows = [
        ("cpu.pb", requests()[0].clone()),
        ("requests.pb", count("requests", &ended)),
        ("failed.pb", count("requests", &failed)),
        ("errors.pb", count("request_errors", &failed)),
    ];
    let files = windows.map(|(name, data)| home.file(name, &encoded(&data)));
    let spans = |more: &[&str]| spanprof(&[&["spans"], &files.each_ref().map(String::as_str)[..], more].concat());
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let endpoints = spans(&["--by", "endpoint", "--sort", "errors"]);
    assert!(endpoints.stdout.contains("% in spans; requests 39, 1 failed\n"), "{endpoints:?}");
    assert_eq!(words(row(&endpoints, "/cart")), "39 1 10.0 ms 1.20 s 1.20 s 420 ms 42.0% - - 1 2 GET /cart shop");
    assert_eq!(words(row(&endpoints, "/pay")), "0 0 - - - 200 ms 20.0% - - 0 1 POST /pay shop");
    let failed = spans(&["--sort", "errors", "--json", "-n", "1"]).stdout;
    assert!(failed.contains(&format!(r#""span_id":"{}""#, hex::encode(ids(2).1))), "{failed}");
    assert_eq!((number(&failed, "errors"), number(&failed, "duration_ns")), (1, 1_200 * MS), "{failed}");
    let slow = spans(&["--sort", "duration", "-n", "2"]);
    assert_eq!(words(row(&slow, &hex::encode(ids(2).1))).split(' ').take(2).collect::<Vec<_>>(), ["1", "1.20"]);
    assert!(words(&slow.stdout).contains("errors duration cpu"), "{slow:?}");
    let compared = spans(&["--against-endpoint", "--span-id", &hex::encode(ids(2).1)]);
    assert!(compared.stdout.contains("\nit took 1.20 s\nit ended with an error\n"), "{compared:?}");
    // 320 ms of the other sampled request, among 38 ended ones.
    assert!(compared.stdout.contains("\ncpu: 100 ms, mean of the 38 others: 8.42 ms"), "{compared:?}");
    assert!(compared.stderr.contains("waits are unknown: SPANPROF_PROFILES=all"), "{compared:?}");
    let serve_directory = TestDirectory::new();
    let serve = Serve::start(serve_directory.path(), &[]);
    let one = || {
        let text = get(&serve.http, &format!("/api/request?span_id={}", hex::encode(ids(2).1))).text();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["hints"].clone()
    };
    let sent = files.each_ref().map(|file| std::fs::read(file).unwrap());
    sent.iter().for_each(|body| assert_eq!(post(&serve.http, &[], body).status, 200));
    let hint = "Waits of this request are unknown: it took 1.20 s, its CPU time is 100 ms, and there is no profile of wall time, \
                off-CPU time or locks. SPANPROF_PROFILES=all records them.";
    assert_eq!(one(), json!([hint]));
    let waits = window("shop", "wall", &[TestSample(&["main", "cart"], 900 * MS, CART, 2)]);
    assert_eq!(post(&serve.http, &[], &encoded(&waits)).status, 200);
    assert_eq!(one(), json!([]));
    let unlabeled = window("shop", "cpu", &[TestSample(&["main", "cart"], 40 * MS, &[], 2)]);
    let unlabeled = home.file("unlabeled.pb", &encoded(&unlabeled));
    let named = spanprof(&["spans", &unlabeled, &files[2], "--against-endpoint", "--span-id", &hex::encode(ids(2).1)]);
    assert!(named.stdout.contains("of GET /cart  shop\n"), "by its end: {named:?}");
    let ends_only = spanprof(&["spans", &files[2], "--against-endpoint", "--span-id", &hex::encode(ids(2).1)]);
    assert!(ends_only.stderr.contains("took 1.20 s and has no samples"), "{ends_only:?}");
}

#[test]
fn a_window_removed_by_the_server_is_left_out_with_a_count() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for _ in 0..2 {
        assert_eq!(post(&serve.http, &[], &encoded(&slow_request())).status, 200);
    }
    let removed = home.names().into_iter().find(|name| name.ends_with(".pb.gz")).expect("a window");
    std::fs::remove_file(home.path().join(removed)).unwrap();
    let note = "spanprof: 1 window was removed by the server meanwhile, and is left out\n";
    let done = spanprof(&["spans", &serve.url()]);
    assert_eq!((done.code, done.stderr.as_str()), (0, note), "{done:?}");
    assert!(row(&done, "80 spans").contains("in spans"), "{done:?}");
    let compared = spanprof(&["diff", &serve.url(), &serve.url()]);
    assert_eq!((compared.code, compared.stderr), (0, note.repeat(2)), "{}", compared.stdout);
}

#[test]
fn the_server_lists_requests_and_compares_one_with_its_endpoint() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for data in requests().iter().chain(&waiting_requests()) {
        assert_eq!(post(&serve.http, &[], &encoded(data)).status, 200);
    }
    let endpoints = get(&serve.http, "/api/requests?sort=wait").text();
    assert_eq!((number(&endpoints, "spans"), number(&endpoints, "count")), (40, 3), "{endpoints}");
    assert!(endpoints.contains(r#""rows":[{"service":"shop","endpoint":"POST /pay""#), "{endpoints}");
    let spans = get(&serve.http, "/api/requests?by=span&endpoint=POST%20/pay").text();
    let (trace, span) = [ids(3)].map(|(trace, span)| (hex::encode(trace), hex::encode(span)))[0].clone();
    assert!(spans.contains(&format!(r#""rows":[{{"trace_id":"{trace}","span_id":"{span}""#)), "{spans}");
    assert_eq!(number(&spans, "count"), 1, "{spans}");
    // A link of a tracing system may have the trace only.
    let slow = ids(7);
    for query in
        [format!("span_id={}&type=cpu", hex::encode(slow.1)), format!("trace_id={}&service=shop", hex::encode(slow.0))]
    {
        let one = get(&serve.http, &format!("/api/request?{query}")).text();
        assert_eq!(number(&one, "others"), 38, "{one}");
        let answer: serde_json::Value = serde_json::from_str(&one).unwrap();
        let rows = answer["time"]["rows"].as_array().unwrap();
        let wall = rows.iter().find(|row| row["name"] == "wall").unwrap();
        assert_eq!((&wall["weight"], &wall["mean"]), (&json!(1860000000), &json!(60000000.0)), "{one}");
        assert!(one.contains(r#""endpoint":"GET /cart""#) && one.contains(r#""function":"replica""#), "{one}");
        assert!(one.contains(r#""significant":true"#), "{one}");
    }
    assert!(get(&serve.http, "/api/request?span_id=00000000000000ff").text().contains(r#""found":false"#));
    assert!(get(&serve.http, "/api/request").text().contains("expected `span_id` or `trace_id`"));
    assert!(get(&serve.http, "/api/requests?sort=name")
        .text()
        .contains("expected cpu, alloc, wait, errors or duration, got `name`"));
    let findings = get(&serve.http, "/api/explain?service=shop").text();
    assert!(findings.contains(&format!("http://{}", serve.http)) && findings.contains(r#""rule":""#), "{findings}");
}

#[test]
fn a_request_is_compared_with_those_of_its_time() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let minutes_ago = |minutes: u64, number| {
        let start_ns = now_ns() - minutes * 60_000_000_000;
        window_at("shop", "cpu", start_ns, &[TestSample(&["main", "cart"], 100 * MS, CART, number)])
    };
    // The request is in two windows, five minutes apart.
    for data in [minutes_ago(60, 1), minutes_ago(26, 7), minutes_ago(21, 7), minutes_ago(12, 2), minutes_ago(5, 3)] {
        assert_eq!(post(&serve.http, &[], &encoded(&data)).status, 200);
    }
    let one = get(&serve.http, &format!("/api/request?span_id={}", hex::encode(ids(7).1))).text();
    let answer: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_eq!((&answer["others_within_s"], &answer["time"]["others"]), (&json!(600), &json!(1)), "{one}");
    assert_eq!(answer["time"]["rows"][0]["weight"], json!(200 * MS), "{one}");
}

const LOADS: &str = "loads /usr/lib/python3.11/json/__init__.py";
const CONDITION: &str = "Condition.wait /usr/lib/python3.11/threading.py";
const READINTO: &str = "SocketIO.readinto /usr/lib/python3.11/socket.py";

/// Two requests of /cart that compute and wait; the first also waits for a queue and a connection.
fn computing_and_waiting_requests() -> [ProfilesData; 2] {
    let cpu = [
        TestSample(&["main", "cart"], 60 * MS, CART, 1),
        TestSample(&["main", "cart", LOADS], 40 * MS, CART, 1),
        TestSample(&["main", "cart"], 20 * MS, CART, 2),
    ];
    let waits = [
        TestSample(&["main", "cart", CONDITION, "[lock]"], 500 * MS, CART, 1),
        TestSample(&["main", "cart", READINTO, "[I/O]"], 200 * MS, CART, 1),
        TestSample(&["main", "cart", READINTO, "[I/O]"], 50 * MS, CART, 2),
    ];
    [window("shop", "cpu", &cpu), window("shop", "off_cpu", &waits)]
}

#[test]
fn the_time_of_a_span_has_its_parts_beside_those_of_the_others_in_text_and_json_and_in_the_server() {
    let home = TestDirectory::new();
    let [cpu, waits] = computing_and_waiting_requests();
    let files = [home.file("cpu.pb", &encoded(&cpu)), home.file("waits.pb", &encoded(&waits))];
    let span = hex::encode(ids(1).1);
    let compare = |more: &[&str]| {
        spanprof(&[&["spans", &files[0], &files[1], "--against-endpoint", "--span-id", &span], more].concat())
    };
    let done = compare(&[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("compared by off_cpu, which has most of its time"), "{done:?}");
    let lines: Vec<String> =
        done.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let start = lines.iter().position(|line| line == "this mean ratio samples where its time went").expect("a heading");
    assert_eq!(
        lines[start + 1..start + 7],
        [
            "100 ms 20.0 ms 5.0 × 10 On the CPU",
            "60.0 ms 20.0 ms 3.0 × 6 Own code",
            "40.0 ms 0 - 4 Libraries",
            "700 ms 50.0 ms 14.0 × 70 Waiting (off CPU)",
            "500 ms 0 - 50 Condition, queue or result",
            "200 ms 50.0 ms 4.0 × 20 Network or local socket",
        ],
        "{done:?}"
    );
    let of_verb: serde_json::Value = serde_json::from_str(&compare(&["--json"]).stdout).unwrap();
    let waiting = &of_verb["time"]["rows"][1];
    assert_eq!((&waiting["name"], &waiting["weight"]), (&json!("off_cpu"), &json!(700 * MS)), "{of_verb}");
    let names: Vec<_> = waiting["parts"].as_array().unwrap().iter().map(|part| &part["name"]).collect();
    assert_eq!(names, ["condition", "socket"], "{of_verb}");
    assert_eq!(waiting["parts"][0]["frame"], "[lock]");

    let store = TestDirectory::new();
    let serve = Serve::start(store.path(), &[]);
    for data in [&cpu, &waits] {
        assert_eq!(post(&serve.http, &[], &encoded(data)).status, 200);
    }
    let of_server: serde_json::Value =
        serde_json::from_str(&get(&serve.http, &format!("/api/request?span_id={span}")).text()).unwrap();
    assert_eq!(of_server["time"], of_verb["time"]);
}
