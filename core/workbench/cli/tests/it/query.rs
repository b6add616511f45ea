//! Queries to a running server, by HTTP and by the verbs.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;
use spanprof_profile::transform::FunctionKey;

use crate::client::{get, http, post};
use crate::fixture::{
    encoded, gzip, ids, now_ns, number, shop, spanprof, window, window_at, Serve, TestDirectory, TestSample,
};

fn with_two_services() -> (TestDirectory, Serve) {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for data in [
        shop("checkout"),
        window("checkout", "wall", &[TestSample(&["main", "sleep"], 9_000_000_000, &[], 0)]),
        window("search", "cpu", &[TestSample(&["main", "find"], 70_000_000, &[("endpoint", "/find")], 4)]),
    ] {
        assert_eq!(post(&serve.http, &[], &encoded(&data)).status, 200);
    }
    (home, serve)
}

/// The totals of the steps of a timeline; `None` where a gauge has no window.
fn step_totals(timeline: &str) -> Vec<Option<i64>> {
    let timeline: Value = serde_json::from_str(timeline).unwrap();
    timeline["totals"].as_array().unwrap().iter().map(Value::as_i64).collect()
}

#[test]
fn services_types_and_labels_are_listed() {
    let (_home, serve) = with_two_services();
    let services = get(&serve.http, "/api/services").text();
    for words in [r#""name":"checkout","types":["cpu","wall"]"#, r#""name":"search","types":["cpu"]"#] {
        assert!(services.contains(words), "{services}");
    }
    let types = get(&serve.http, "/api/types?service=checkout").text();
    assert!(types.contains(r#""type":"cpu","unit":"nanoseconds""#) && types.contains(r#""type":"wall""#), "{types}");
    let labels = get(&serve.http, "/api/labels?service=checkout").text();
    assert!(labels.contains(r#""name":"endpoint","values":["/cart","/pay"]"#), "{labels}");
    assert!(labels.contains(r#""name":"process.pid","values":["4711"]"#), "{labels}");
    assert!(!labels.contains("/find"), "{labels}");
}

#[test]
fn filters_by_service_type_label_trace_and_span_select_their_samples() {
    let (_home, serve) = with_two_services();
    let total = |query: &str| number(&get(&serve.http, &format!("/api/top?{query}")).text(), "total");
    assert_eq!(total("type=cpu"), 1_070_000_000);
    assert_eq!(total("service=checkout"), 1_000_000_000, "cpu is the preferred type");
    assert_eq!(total("service=checkout&type=wall"), 9_000_000_000);
    assert_eq!(total("label=endpoint%3D%2Fcart"), 700_000_000);
    assert_eq!(total("label=endpoint=/cart&label=endpoint=/pay"), 0);
    assert_eq!(total("label=process.pid=4711&service=search"), 70_000_000);
    let (trace_id, span_id) = ids(2);
    assert_eq!(total(&format!("trace_id={}", hex::encode(trace_id))), 200_000_000);
    assert_eq!(total(&format!("span_id={}", hex::encode(span_id))), 200_000_000);
    assert_eq!(total(&format!("trace_id={}", hex::encode(ids(99).0))), 0);
    assert_eq!(total("service=nobody"), 0);
    assert_eq!(total("type=cpu&label=endpoint!%3D/cart"), 370_000_000);
    assert_eq!(total("label=endpoint=~/(pay|find)"), 370_000_000);
    assert_eq!(total("label=endpoint!~/c.*&service=checkout&type=cpu"), 300_000_000);
    assert_eq!(total(&format!("label=trace_id%3D{}", hex::encode(trace_id))), 200_000_000, "the label of pprof files");
    let refused = get(&serve.http, "/api/top?label=endpoint=~(");
    assert!(refused.status == 400 && refused.text().contains("not a regular expression"), "{}", refused.text());
    let top = |label: &str| spanprof(&["top", &serve.url(), "--type", "cpu", "--label", label, "--json"]).stdout;
    assert_eq!(number(&top("endpoint!=/cart"), "total"), 370_000_000, "by the command line through the server");
}

#[test]
fn profiles_without_a_service_name_are_selected_by_an_empty_one() {
    let (home, serve) = with_two_services();
    let mut nameless = window("", "cpu", &[TestSample(&["main"], 40_000_000, &[], 0)]);
    nameless.resources[0].resource.retain(|attribute| attribute.key != "service.name");
    assert_eq!(post(&serve.http, &[], &encoded(&nameless)).status, 200);
    let total = |query: &str| number(&get(&serve.http, &format!("/api/top?type=cpu&{query}")).text(), "total");
    assert_eq!([total(""), total("service=*"), total("service=")], [1_110_000_000, 1_110_000_000, 40_000_000]);
    assert_eq!(number(&get(&serve.http, "/api/types?service=").text(), "total"), 40_000_000);
    for source in [serve.url(), home.path().to_str().unwrap().to_owned()] {
        let top = spanprof(&["top", &source, "--type", "cpu", "--service", "", "--json"]);
        assert_eq!(number(&top.stdout, "total"), 40_000_000, "{source}: {top:?}");
    }
}

#[test]
fn the_top_table_adds_up_and_keeps_its_order() {
    let (_home, serve) = with_two_services();
    let top = get(&serve.http, "/api/top?service=checkout&type=cpu&limit=2").text();
    assert_eq!((number(&top, "samples"), number(&top, "functions"), number(&top, "windows")), (100, 6, 1), "{top}");
    assert!(
        top.contains(r#""rows":[{"function":"price","file":"/srv/checkout/app.py","frame_type":"cpython","flat":800000000,"own":800000000,"cum":800000000},{"function":"render""#),
        "{top}"
    );
}

#[test]
fn the_top_table_is_searched_sorted_and_paged_over_all_functions() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let names: Vec<String> = (0..400).map(|number| format!("step{number:03}")).chain(["Needle".to_owned()]).collect();
    let stacks: Vec<[&str; 2]> = names.iter().map(|name| ["main", name]).collect();
    let samples: Vec<_> = stacks
        .iter()
        .enumerate()
        .map(|(nth, stack)| TestSample(stack, (500 - nth as i64) * 10_000_000, &[], 0))
        .collect();
    assert_eq!(post(&serve.http, &[], &encoded(&window("checkout", "cpu", &samples))).status, 200);
    let top = |query: &str| -> Value {
        let response = get(&serve.http, &format!("/api/top?{query}"));
        assert_eq!(response.status, 200, "{}", response.text());
        serde_json::from_str(&response.text()).unwrap()
    };
    let rows = |query: &str| {
        let top = top(query);
        let rows = top["rows"].as_array().unwrap().iter();
        let names: Vec<String> = rows.map(|row| row["function"].as_str().unwrap().to_owned()).collect();
        (top["functions"].as_u64().unwrap(), top["matching"].as_u64().unwrap(), names.join(" "))
    };
    let expected = |matching, names: &str| (402, matching, names.to_owned());
    assert_eq!(rows("limit=2"), expected(402, "step000 step001"));
    assert_eq!(rows("limit=2&sort=cum"), expected(402, "main step000"));
    assert_eq!(rows("limit=2&sort=own"), expected(402, "step000 step001"));
    assert_eq!(rows("limit=3&sort=function"), expected(402, "main Needle step000"));
    assert_eq!(rows("limit=2&offset=399"), expected(402, "step399 Needle"));
    assert_eq!(rows("limit=2&offset=9999"), expected(402, ""));
    assert_eq!(rows("search=needle"), expected(1, "Needle"));
    assert_eq!(rows("search=APP.PY&limit=1"), expected(402, "step000"));
    assert_eq!(rows("search=/^STEP[0-3]..$/&limit=1&offset=1"), expected(400, "step001"));
    assert_eq!(rows("search=/(/"), expected(0, ""));
}

#[test]
fn the_top_table_has_a_second_type_beside_the_first() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let old = [("age", "old")];
    for data in [
        window(
            "checkout",
            "inuse_space",
            &[
                TestSample(&["main", "cache"], 3_000, &old, 0),
                TestSample(&["main", "pool"], 1_000, &[("age", "young")], 0),
            ],
        ),
        window(
            "checkout",
            "alloc_space",
            &[TestSample(&["main", "cache"], 10_000, &[], 0), TestSample(&["main", "parse"], 90_000, &[], 0)],
        ),
    ] {
        assert_eq!(post(&serve.http, &[], &encoded(&data)).status, 200);
    }
    let top = |query: &str| -> Value {
        let path = format!("/api/top?type=inuse_space&label=age%3Dold&beside=alloc_space{query}");
        serde_json::from_str(&get(&serve.http, &path).text()).unwrap()
    };
    let rows = |query: &str| -> Vec<String> {
        let numbers = ["flat", "cum", "beside_flat", "beside_cum"];
        let row = |row: &Value| {
            format!("{} {:?}", row["function"].as_str().unwrap(), numbers.map(|name| row[name].as_i64().unwrap()))
        };
        top(query)["rows"].as_array().unwrap().iter().map(row).collect()
    };
    let [cache, main, parse] =
        ["cache [3000, 3000, 10000, 10000]", "main [0, 3000, 0, 100000]", "parse [0, 0, 90000, 90000]"];
    assert_eq!(rows(""), [cache, main, parse]);
    assert_eq!(rows("&sort=beside_flat"), [parse, cache, main]);
    assert_eq!(rows("&sort=beside_cum"), [main, parse, cache]);
    assert_eq!(rows("&sort=beside_cum&search=parse"), [parse]);
    let table = top("");
    assert_eq!(table["beside"].to_string(), r#"{"type":"alloc_space","unit":"nanoseconds","total":100000}"#);
    assert_eq!((table["total"].as_i64(), table["functions"].as_i64()), (Some(3_000), Some(3)));
    let refused = get(&serve.http, "/api/top?sort=beside_flat");
    assert!(
        refused.status == 400 && refused.text().contains("expected flat, own, cum or function"),
        "{}",
        refused.text()
    );
}

#[test]
fn the_flame_graph_folds_libraries_except_for_functions_that_the_search_matches() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let otlp = {
        let file = home.file(
            "a.speedscope.json",
            br#"{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"spanprof","shared":{"frames":[
                {"name":"main","file":"/srv/main.js"},{"name":"next","file":"/srv/node_modules/express/router.js"},
                {"name":"handle","file":"/srv/node_modules/express/layer.js"},{"name":"price","file":"/srv/price.js"},
                {"name":"emit","file":"node:events"},{"name":"write","file":"/usr/bin/libuv.so.1"}]},
                "profiles":[{"type":"sampled","name":"cpu","unit":"nanoseconds","samples":[[0,1,2,3],[0,1,2,3,4,5],[0,1]],
                "weights":[50,30,20],"startValue":0,"endValue":100}]}"#,
        );
        let otlp = home.path().join("a.otlp.pb").to_string_lossy().into_owned();
        let converted = spanprof(&["convert", "--to", "otlp", &file, "-o", &otlp]);
        assert_eq!(converted.code, 0, "{converted:?}");
        std::fs::read(otlp).unwrap()
    };
    assert_eq!(post(&serve.http, &[], &otlp).status, 200);
    let names = |query: &str| {
        let response = get(&serve.http, &format!("/api/flamegraph?type=cpu{query}"));
        assert_eq!(response.status, 200, "{}", response.text());
        let json: Value = serde_json::from_str(&response.text()).unwrap();
        let nodes = json["tree"]["nodes"].as_array().unwrap().chunks(3);
        let names =
            nodes.skip(1).map(|node| json["tree"]["names"][node[1].as_u64().unwrap() as usize].as_str().unwrap());
        (names.collect::<Vec<_>>().join(" "), json["matched"].as_i64(), json["tree"]["origin"].to_string())
    };
    let (whole, folded) = ("main next handle price emit write", "main express price node native");
    assert_eq!(names("").0, whole);
    assert_eq!(names("&fold=libraries"), (folded.to_owned(), None, "[3,0,1,0,1,2]".to_owned()));
    let matches = |query: &str| (names(query).0, names(query).1);
    let split = "main express handle price node native";
    assert_eq!(matches("&fold=libraries&search=handle"), (split.to_owned(), Some(80)));
    assert_eq!(matches("&fold=libraries&search=price&width=800"), (folded.to_owned(), Some(80)));
    assert_eq!(names("&fold=libraries").0, folded, "the search before is not kept");
    let refused = get(&serve.http, "/api/flamegraph?fold=all");
    assert!(refused.status == 400 && refused.text().contains("`fold`: expected libraries, got `all`"));
    let tree = spanprof(&["tree", "--fold", &serve.url(), "--type", "cpu"]).stdout;
    let rows: Vec<&str> =
        tree.lines().skip(2).filter_map(|line| line.split_whitespace().rfind(|word| !word.starts_with('/'))).collect();
    assert_eq!(rows.join(" "), folded, "{tree}");
}

#[test]
fn the_flame_graph_has_the_nodes_that_are_visible_at_a_width() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let names: Vec<String> = (0..3000).map(|number| format!("step{number:04}")).collect();
    let stacks: Vec<[&str; 3]> = names.iter().map(|name| ["main", "narrow", name]).collect();
    let mut samples: Vec<_> = stacks.iter().map(|stack| TestSample(stack, 10_000_000, &[], 0)).collect();
    samples.push(TestSample(&["main", "wide", "step0000"], 70_000_000_000, &[], 0));
    assert_eq!(post(&serve.http, &[], &encoded(&window("checkout", "cpu", &samples))).status, 200);
    let flame = |query: &str| -> Value {
        let response = get(&serve.http, &format!("/api/flamegraph?type=cpu{query}"));
        assert_eq!(response.status, 200, "{}", response.text());
        serde_json::from_str(&response.text()).unwrap()
    };
    let key = |name: &str| {
        let file = "/srv/checkout/app.py".to_owned();
        let key = FunctionKey { name: name.to_owned(), file, ..FunctionKey::default() };
        format!("{:08x}", key.path_key())
    };
    let names = |flame: &Value| {
        let nodes = flame["tree"]["nodes"].as_array().unwrap().chunks(3);
        nodes
            .map(|node| flame["tree"]["names"][node[1].as_u64().unwrap() as usize].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let whole = flame("");
    assert_eq!((names(&whole).len(), &whole["tree"]["elided"], &whole["matched"]), (3005, &Value::Null, &Value::Null));
    let visible = flame("&width=100&search=STEP0000");
    assert_eq!(names(&visible), ["root", "main", "narrow", "wide", "step0000"]);
    assert_eq!(visible["tree"]["elided"].to_string(), "[0,0,30000000000,0,0]");
    assert_eq!([&visible["matched"], &visible["tree"]["matched"]], [70_010_000_000_i64, 70_010_000_000]);
    assert_eq!(visible["tree"]["search"], "STEP0000");
    let zoomed = flame(&format!("&width=1000&path={}.{}&search=step0000", key("main"), key("narrow")));
    assert_eq!((names(&zoomed).len(), &zoomed["matched"]), (3003, &10_000_000.into()));
    assert_eq!(zoomed["tree"]["elided"][1], 70_000_000_000_i64, "the other callees of a caller");
    let vanished = flame(&format!("&width=100&path={}.{}", key("main"), key("gone")));
    assert_eq!(names(&vanished), names(&visible), "the path as far as it exists");
    for (query, words) in
        [("width=wide", "number of pixels"), ("width=0", "number of pixels"), ("path=main", "`path`: expected keys")]
    {
        let refused = get(&serve.http, &format!("/api/flamegraph?{query}"));
        assert!(refused.status == 400 && refused.text().contains(words), "{}", refused.text());
    }
}

#[test]
fn a_time_range_cuts_windows_off() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let hour_ns = 3_600_000_000_000;
    for (start_ns, weight_ns) in [(now_ns() - 2 * hour_ns, 100_000_000), (now_ns() - 20_000_000_000, 30_000_000)] {
        let data = window_at("checkout", "cpu", start_ns, &[TestSample(&["main"], weight_ns, &[], 0)]);
        assert_eq!(post(&serve.http, &[], &encoded(&data)).status, 200);
    }
    let total = |query: &str| number(&get(&serve.http, &format!("/api/top?{query}")).text(), "total");
    assert_eq!(total(""), 130_000_000);
    assert_eq!(total("from=-1h"), 30_000_000);
    assert_eq!(total("to=-1h"), 100_000_000);
    assert_eq!(
        total(&format!("from={}&to={}", now_ns() / 1_000_000 - 7_300_000, now_ns() / 1_000_000_000 - 7_000)),
        100_000_000
    );
    let timeline = get(&serve.http, "/api/timeline?service=checkout&type=cpu").text();
    let sum: i64 = step_totals(&timeline).iter().flatten().sum();
    assert_eq!(sum, 130_000_000, "{timeline}");
}

#[test]
fn memory_in_use_is_that_of_the_newest_window() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for (age_s, bytes) in [(40, 1_000_000), (30, 5_000_000), (20, 3_000_000)] {
        let start_ns = now_ns() - age_s * 1_000_000_000;
        let data = window_at("checkout", "inuse_space", start_ns, &[TestSample(&["main", "cache"], bytes, &[], 0)]);
        assert_eq!(post(&serve.http, &[], &encoded(&data)).status, 200);
    }
    let top = get(&serve.http, "/api/top?type=inuse_space").text();
    assert_eq!((number(&top, "total"), number(&top, "windows")), (3_000_000, 3), "{top}");
    let folded = get(&serve.http, "/api/profile?format=folded").text();
    assert_eq!(folded, "main;cache 3000000\n");
    let in_detail = spanprof(&["convert", &serve.url(), "--to", "folded"]);
    assert_eq!(in_detail.stdout, folded, "{in_detail:?}");
    let timeline = get(&serve.http, "/api/timeline?type=inuse_space").text();
    let totals = step_totals(&timeline);
    assert!(
        totals.contains(&Some(1_000_000)) && totals.contains(&Some(5_000_000)),
        "each step has the mean: {timeline}"
    );
    assert!(totals.iter().flatten().all(|total| *total <= 5_000_000), "{timeline}");
    assert_eq!(["lowest", "last", "peak"].map(|name| number(&timeline, name)), [1_000_000, 3_000_000, 5_000_000]);
}

#[test]
fn memory_that_was_freed_does_not_return_through_a_label() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for (age_s, label) in [(40, "/cart"), (20, "/pay")] {
        let samples = [TestSample(&["main"], 1_000_000, &[("endpoint", label)], 0)];
        let data = window_at("checkout", "inuse_space", now_ns() - age_s * 1_000_000_000, &samples);
        assert_eq!(post(&serve.http, &[], &encoded(&data)).status, 200);
    }
    let total = |label: &str| number(&get(&serve.http, &format!("/api/top?label=endpoint={label}")).text(), "total");
    assert_eq!([total("/cart"), total("/pay")], [0, 1_000_000], "the newest window has no memory of /cart");
}

#[test]
fn a_type_without_a_passing_sample_is_not_shown_by_default() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for (type_name, label) in [("inuse_space", "/cart"), ("alloc_space", "/cart"), ("alloc_space", "/pay")] {
        let samples = [TestSample(&["main"], 1_000_000, &[("endpoint", label)], 0)];
        assert_eq!(post(&serve.http, &[], &encoded(&window("checkout", type_name, &samples))).status, 200);
    }
    let shown = |label: &str| get(&serve.http, &format!("/api/top?label=endpoint={label}")).text();
    assert!(shown("/cart").contains(r#""type":"inuse_space""#), "{}", shown("/cart"));
    assert!(shown("/pay").contains(r#""type":"alloc_space""#), "{}", shown("/pay"));
}

#[test]
fn the_verbs_query_a_running_server_as_they_read_files() {
    let (home, serve) = with_two_services();
    let trace_id = hex::encode(ids(3).0);
    for source in [serve.url(), home.path().to_str().unwrap().to_owned()] {
        let top = spanprof(&["top", &source, "--service", "checkout", "--type", "cpu", "--json"]);
        assert_eq!(top.code, 0, "{top:?}");
        assert_eq!(number(&top.stdout, "total"), 1_000_000_000, "{top:?}");
        let of_trace = spanprof(&["top", &source, "--trace-id", &trace_id]);
        assert_eq!(of_trace.code, 0, "{of_trace:?}");
        assert!(of_trace.stdout.contains("price") && !of_trace.stdout.contains("render"), "{of_trace:?}");
        let folded = spanprof(&["convert", &source, "--to", "folded", "--service", "search"]);
        assert_eq!(folded.stdout, "main;find 70000000\n", "{folded:?}");
    }
    // A link copied from the page.
    let link = format!("{}/?service=search&type=cpu&view=top", serve.url());
    assert_eq!(number(&spanprof(&["top", &link, "--json"]).stdout, "total"), 70_000_000);
    let check = spanprof(&["check", &serve.url(), "--json"]);
    assert_eq!(check.code, 0, "{check:?}");
    assert_eq!(check.stdout.matches("\"findings\"").count(), 3, "{check:?}");
}

#[test]
fn profiles_can_be_fetched_in_every_format() {
    let (_home, serve) = with_two_services();
    let fetch = |format: &str| get(&serve.http, &format!("/api/profile?service=search&format={format}"));
    assert_eq!(fetch("folded").text(), "main;find 70000000\n");
    assert!(fetch("flamegraph").text().to_lowercase().starts_with("<!doctype html>"));
    assert_eq!(fetch("pprof").body[..2], [0x1f, 0x8b]);
    assert!(!fetch("otlp").body.is_empty());
    assert_eq!(fetch("xml").status, 400);
}

#[test]
fn wrong_parameters_name_the_expected_form() {
    let (_home, serve) = with_two_services();
    for (query, words) in [
        ("trace_id=zz", "32 hex digits"),
        ("span_id=1", "16 hex digits"),
        ("from=soon", "RFC 3339"),
        ("label=x", "KEY=VALUE"),
        ("limit=-1", "expected a number"),
        ("from=now&to=-1h", "must be before"),
        ("servcie=checkout", "unknown parameter `servcie` of /api/top: expected one of service, type"),
        ("format=pprof", "unknown parameter `format` of /api/top"),
    ] {
        let response = get(&serve.http, &format!("/api/top?{query}"));
        assert_eq!(response.status, 400, "{query}");
        assert!(response.text().starts_with(r#"{"error":""#) && response.text().contains(words), "{}", response.text());
    }
    for path in ["/api/nothing", "/api/windows/..%2f..%2fetc%2fpasswd", "/api/windows/../../etc/passwd", "/etc/passwd"]
    {
        assert_eq!(get(&serve.http, path).status, 404, "{path}");
    }
    assert_eq!(http(&serve.http, Method::DELETE, "/api/stats", &[], b"").status, 405);
}

#[test]
fn the_page_is_one_document_without_external_resources() {
    let (_home, serve) = with_two_services();
    let page = get(&serve.http, "/?service=checkout");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let text = page.text();
    for outside in ["src=\"http", "href=\"http", "@import", "url(http", "{{"] {
        assert!(!text.contains(outside), "{outside}");
    }
    let policy = page.header("content-security-policy").to_owned();
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(text.contains(&format!("nonce=\"{nonce}\"")) && nonce.len() == 16, "{policy}");
    let head = http(&serve.http, Method::HEAD, "/", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_repeated_query_of_a_day_includes_new_windows() {
    let home = TestDirectory::new();
    // One window each 10 minutes of the last day, stored by an earlier run of the server: two requests per slice.
    let minute_ms = 60_000;
    let start_ms = now_ns() / 1_000_000 - 1440 * minute_ms;
    let received_ms = |nth: u64| start_ms + nth * 10 * minute_ms;
    for nth in 0..144 {
        let samples = [TestSample(&["main", "serve"], 100_000_000, &[("endpoint", "/cart")], nth % 7 + 1)];
        let data = window_at("checkout", "cpu", (received_ms(nth) - 10_000) * 1_000_000, &samples);
        home.file(&format!("{:013}-1-{nth:06}.otlp.pb.gz", received_ms(nth)), &gzip(&encoded(&data)));
    }
    let serve = Serve::start(home.path(), &[]);
    let stats = || get(&serve.http, "/api/stats").text();
    let until = Instant::now() + Duration::from_secs(60);
    while !stats().contains("\"indexing\":false") {
        assert!(Instant::now() < until, "still indexing: {}", stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    let kept = || number(&stats(), "windows");
    let tenths = |query: &str| number(&get(&serve.http, &format!("/api/top?{query}")).text(), "total") / 100_000_000;
    let all = kept();
    assert_eq!(all, 144);
    for query in ["", "service=checkout", "service=checkout&type=cpu&label=endpoint=/cart", "from=0&to=now"] {
        assert_eq!((tenths(query), tenths(&format!("{query}&limit=1"))), (all, all), "{query}");
    }
    assert_eq!(tenths("service=cart"), 0);
    assert_eq!(tenths("label=endpoint=/pay"), 0);
    // Ranges that begin inside a slice, at the start and in the middle of a window: the window is included.
    for (nth, into_ms) in [(100, 0), (101, 0), (102, 0), (101, 5_000)] {
        let from_ms = received_ms(nth) - 10_000 + into_ms;
        assert_eq!(tenths(&format!("from={from_ms}")), 144 - nth as i64, "from {nth}+{into_ms}");
        assert_eq!(tenths(&format!("to={from_ms}")), (nth + into_ms.min(1)) as i64, "to {nth}+{into_ms}");
    }
    let newer = window("checkout", "cpu", &[TestSample(&["main", "serve"], 200_000_000, &[], 9)]);
    assert_eq!(post(&serve.http, &[], &encoded(&newer)).status, 200);
    assert_eq!(tenths("service=checkout"), kept() + 1);
    let timeline = get(&serve.http, "/api/timeline?service=checkout&type=cpu&label=endpoint=/cart").text();
    let sum: i64 = step_totals(&timeline).iter().flatten().sum();
    assert_eq!(sum / 100_000_000, kept() - 1, "{timeline}");
}
