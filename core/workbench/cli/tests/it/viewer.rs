//! What the page of `serve` reads of functions, stacks and labels.

use serde_json::{json, Value};

use crate::client::{get, post};
use crate::fixture::{encoded, shop, spanprof, window, Serve, TestDirectory, TestSample};

#[test]
fn the_server_shows_a_function_with_its_neighbors_and_reads_sources_below_their_directory_only() {
    let home = TestDirectory::new();
    let sources = home.path().join("sources");
    std::fs::create_dir_all(sources.join("checkout")).unwrap();
    std::fs::create_dir_all(home.path().join("outside")).unwrap();
    let text: String = (1..=20).map(|line| format!("line_{line}()\n")).collect();
    std::fs::write(sources.join("checkout/app.py"), &text).unwrap();
    let outside = home.file("outside/app.py", text.as_bytes());
    std::os::unix::fs::symlink(home.path().join("outside"), sources.join("linked")).unwrap();
    let directory = sources.to_str().unwrap();
    let template = "https://git.example/{path}#L{line}";
    let serve = Serve::start(&home.path().join("store"), &["--source-path", directory, "--source-url", template]);
    // The fixture names the file /srv/SERVICE/app.py.
    let leading_out = format!("../..{}", outside.strip_suffix("/app.py").unwrap());
    for service in ["checkout", "linked", "absent", &leading_out] {
        assert_eq!(post(&serve.http, &[], &encoded(&shop(service))).status, 200);
    }
    let function = |service: &str| -> Value {
        let query = format!("/api/function?name=price&type=cpu&service={}", service.replace('/', "%2F"));
        serde_json::from_str(&get(&serve.http, &query).text()).unwrap()
    };
    let price = function("checkout");
    assert_eq!((price["flat"].as_i64(), price["total"].as_i64()), (Some(800_000_000), Some(1_000_000_000)));
    assert_eq!(price["callers"][0]["function"], "cart");
    let line = &price["source"]["lines"][3];
    assert_eq!((&line["line"], &line["flat"], &line["text"]), (&12.into(), &800_000_000.into(), &"line_12()".into()));
    assert_eq!(price["source"]["link"], "https://git.example/checkout/app.py#L{line}");
    for service in ["linked", "absent", &leading_out] {
        let source = &function(service)["source"];
        assert_eq!((source["lines"].as_array().map(Vec::len), &source["lines"][0]["text"]), (Some(1), &Value::Null));
        assert!(source["note"].as_str().unwrap().contains("--source-path"), "{service}: {source}");
    }
    let unnamed = get(&serve.http, "/api/function?type=cpu");
    assert!(unnamed.status == 400 && unnamed.text().contains("expected `name`"), "{}", unnamed.text());
    let refused = spanprof(&["serve", "--grpc", "0", "--http", "0", "--source-path", &outside]);
    assert!(refused.code != 0 && refused.stderr.contains("expected a directory, got a file"), "{refused:?}");
    let refused = spanprof(&["serve", "--source-url", "https://git.example/{file}"]);
    assert!(refused.code == 2 && refused.stderr.contains("expected a link with {path}"), "{refused:?}");
}

#[test]
fn the_server_tells_the_page_the_link_of_each_tracing_system() {
    let home = TestDirectory::new();
    let jaeger = "http://localhost:16686/trace/{trace_id}?uiFind={span_id}";
    let tempo = r#"https://grafana.example/explore?panes={"t":{"queries":[{"query":"{trace_id}"}]}}"#;
    let links = |flags: &[&str]| -> Value {
        let serve = Serve::start(&home.path().join("store"), flags);
        let stats: Value = serde_json::from_str(&get(&serve.http, "/api/stats").text()).unwrap();
        stats["trace_urls"].clone()
    };
    assert_eq!(links(&[]), json!([]));
    assert_eq!(links(&["--trace-url", jaeger]), json!([{"name": null, "url": jaeger}]));
    let named = [format!("Jaeger={jaeger}"), format!("Tempo eu-1={tempo}")];
    assert_eq!(
        links(&["--trace-url", &named[0], "--trace-url", &named[1]]),
        json!([{"name": "Jaeger", "url": jaeger}, {"name": "Tempo eu-1", "url": tempo}])
    );
    for (flags, error) in [
        (
            vec!["--trace-url", "Jaeger=http://a/{traceId}"],
            "invalid value 'Jaeger=http://a/{traceId}' for '--trace-url",
        ),
        (vec!["--trace-url", "Jaeger=http://a/{traceId}"], "{trace_id} and {span_id} only, got {traceId}"),
        (vec!["--trace-url", jaeger, "--trace-url", tempo], "different name for each link, got two without a name"),
    ] {
        let refused = spanprof(&[&["serve", "--grpc", "0", "--http", "0"], &flags[..]].concat());
        assert!(refused.code == 2 && refused.stderr.contains(error), "{refused:?}");
    }
}

#[test]
fn stacks_are_selected_inverted_and_collapsed_by_parameters() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let samples = [
        TestSample(&["main", "walk", "walk", "leaf"], 50_000_000, &[], 0),
        TestSample(&["main", "leaf"], 30_000_000, &[], 0),
        TestSample(&["main", "other"], 20_000_000, &[], 0),
    ];
    assert_eq!(post(&serve.http, &[], &encoded(&window("checkout", "cpu", &samples))).status, 200);
    let read = |path: &str| -> Value { serde_json::from_str(&get(&serve.http, path).text()).unwrap() };
    // Level, name and self weight in milliseconds of each node.
    let nodes = |query: &str| {
        let tree = &read(&format!("/api/flamegraph?type=cpu{query}"))["tree"];
        let triple = |node: &[Value]| {
            let name = tree["names"][node[1].as_u64().unwrap() as usize].as_str().unwrap().to_owned();
            format!(
                "{}{name} {}",
                " ".repeat(node[0].as_u64().unwrap() as usize),
                node[2].as_i64().unwrap() / 1_000_000
            )
        };
        tree["nodes"].as_array().unwrap().chunks(3).map(triple).collect::<Vec<_>>()
    };
    assert_eq!(nodes("&focus=walk"), ["root 0", " main 0", "  walk 0", "   walk 0", "    leaf 50"]);
    assert_eq!(nodes("&focus=leaf&ignore=walk"), ["root 0", " main 0", "  leaf 30"]);
    assert_eq!(nodes("&focus=walk&recursion=collapse"), ["root 0", " main 0", "  walk 0", "   leaf 50"]);
    assert_eq!(
        nodes("&focus=leaf&invert=1"),
        ["root 0", " leaf 0", "  main 30", "  walk 0", "   walk 0", "    main 50"]
    );
    assert_eq!(nodes("&callers=%5Ewalk%24"), ["root 0", " walk 0", "  main 50"]);
    assert_eq!(nodes("&callers=%5Ewalk%24&invert=1&width=100"), ["root 0", " walk 0", "  main 50"]);
    let top = read("/api/top?type=cpu&focus=walk");
    assert_eq!(
        (top["total"].as_i64(), &top["samples"], top["stacks"].as_i64()),
        (Some(50_000_000), &Value::Null, Some(1))
    );
    let callers = &read("/api/function?type=cpu&name=leaf&ignore=walk")["callers"];
    assert_eq!((callers.as_array().map(Vec::len), callers[0]["weight"].as_i64()), (Some(1), Some(30_000_000)));
    for (query, words) in [
        ("flamegraph?focus=(", "`focus`: expected a regular expression, got `(`"),
        ("flamegraph?recursion=yes", "`recursion`: expected keep or collapse, got `yes`"),
        ("flamegraph?invert=yes", "`invert`: expected 0 or 1, got `yes`"),
        ("top?invert=1", "unknown parameter `invert` of /api/top"),
        ("types?focus=x", "unknown parameter `focus` of /api/types"),
    ] {
        let response = get(&serve.http, &format!("/api/{query}"));
        assert!(response.status == 400 && response.text().contains(words), "{query}: {}", response.text());
    }
}

#[test]
fn labels_have_weights_and_a_label_splits_timeline_and_flame_graph() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let routes: Vec<String> = (0..9).map(|nth| format!("/r{nth}")).collect();
    let labels: Vec<[(&str, &str); 1]> = routes.iter().map(|route| [("route", route.as_str())]).collect();
    let weight = |nth: usize| (10 - nth as i64) * 10_000_000;
    let mut samples: Vec<_> =
        labels.iter().enumerate().map(|(nth, label)| TestSample(&["main", "serve"], weight(nth), label, 0)).collect();
    samples.push(TestSample(&["main"], 5_000_000_000, &[], 0));
    for _ in 0..2 {
        assert_eq!(post(&serve.http, &[], &encoded(&window("checkout", "cpu", &samples))).status, 200);
    }
    let read = |path: &str| -> Value { serde_json::from_str(&get(&serve.http, path).text()).unwrap() };
    let weighted = read("/api/labels?type=cpu&weights=1&limit=2");
    let all = weighted["labels"].as_array().unwrap();
    let route = all.iter().find(|label| label["label"] == "route").unwrap();
    assert_eq!((&route["count"], route["resource"].as_bool()), (&9.into(), Some(false)));
    let values =
        serde_json::json!([{"value": "/r0", "weight": 2 * weight(0)}, {"value": "/r1", "weight": 2 * weight(1)}]);
    assert_eq!(route["values"], values);
    assert!(all.iter().any(|label| label["label"] == "process.pid" && label["resource"] == true), "{weighted}");

    let timeline = read("/api/timeline?type=cpu&group=route");
    let series = timeline["series"].as_array().unwrap();
    let names: Vec<_> = series.iter().map(|series| series["value"].as_str()).collect();
    assert_eq!(names, [Some(""), Some("/r0"), Some("/r1"), Some("/r2"), Some("/r3"), Some("/r4"), None]);
    let sum = |totals: &Value| totals.as_array().unwrap().iter().filter_map(Value::as_i64).sum::<i64>();
    // Weights are divided between steps, each time rounded down.
    let is_near = |value: i64, expected: i64| (expected - value).abs() <= 30;
    assert!(is_near(sum(&series[1]["totals"]), 2 * weight(0)), "{timeline}");
    let parts: i64 = series.iter().map(|series| sum(&series["totals"])).sum();
    assert!(is_near(parts, sum(&timeline["totals"])), "{timeline}");

    let tree = &read("/api/flamegraph?type=cpu&group=route")["tree"];
    let nodes = tree["nodes"].as_array().unwrap().chunks(3).filter(|node| node[0] == 1);
    let groups: Vec<_> =
        nodes.map(|node| tree["names"][node[1].as_u64().unwrap() as usize].as_str().unwrap()).collect();
    let expected =
        ["route: none", "route=/r0", "route=/r1", "route=/r2", "route=/r3", "route=/r4", "route: other values"];
    assert_eq!(groups, expected);
    let total: i64 = tree["nodes"].as_array().unwrap().chunks(3).map(|node| node[2].as_i64().unwrap()).sum();
    assert_eq!(total, read("/api/top?type=cpu")["total"].as_i64().unwrap());
    assert_eq!(get(&serve.http, "/api/top?group=route").status, 400);
}

#[test]
fn a_timeline_has_the_samples_whose_stacks_pass_in_all_by_label_and_by_type() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let samples = [
        TestSample(&["main", "serve"], 30_000_000, &[("route", "/a")], 0),
        TestSample(&["main", "serve", "wait"], 10_000_000, &[("route", "/b")], 0),
        TestSample(&["main", "idle"], 500_000_000, &[], 0),
    ];
    for type_name in ["cpu", "cpu", "off_cpu", "wall"] {
        assert_eq!(post(&serve.http, &[], &encoded(&window("checkout", type_name, &samples))).status, 200);
    }
    let read = |query: &str| -> Value {
        serde_json::from_str(&get(&serve.http, &format!("/api/timeline?{query}")).text()).unwrap()
    };
    let sum = |totals: &Value| totals.as_array().unwrap().iter().filter_map(Value::as_i64).sum::<i64>();
    let is_near = |value: i64, expected: i64| (expected - value).abs() <= 60;
    for (query, expected) in
        [("", 1_080_000_000), ("&focus=serve", 80_000_000), ("&focus=serve&ignore=^wait$", 60_000_000)]
    {
        // The second time from the cache.
        for _ in 0..2 {
            let timeline = read(&format!("type=cpu{query}"));
            assert!(is_near(sum(&timeline["totals"]), expected), "{query}: {timeline}");
        }
    }
    let by_route = read("type=cpu&group=route&focus=serve");
    let series = by_route["series"].as_array().unwrap();
    let weights: Vec<_> =
        series.iter().map(|series| (series["value"].as_str().unwrap(), sum(&series["totals"]))).collect();
    assert!(
        matches!(weights[..], [("/a", a), ("/b", b)] if is_near(a, 60_000_000) && is_near(b, 20_000_000)),
        "{by_route}"
    );
    let by_type = read("type=cpu&by=type&focus=serve");
    let types: Vec<_> = by_type["series"].as_array().unwrap().iter().map(|it| it["value"].as_str().unwrap()).collect();
    assert_eq!(types, ["cpu", "off_cpu"], "wall time contains both");
    assert!(is_near(sum(&by_type["totals"]), 120_000_000), "{by_type}");
    for query in ["by=label", "focus=(", "invert=1"] {
        assert_eq!(get(&serve.http, &format!("/api/timeline?{query}")).status, 400, "{query}");
    }
}

#[test]
fn all_numbers_of_samples_are_those_of_observations_and_not_of_the_records_that_have_them() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let samples =
        [TestSample(&["main", "serve"], 500_000_000, &[], 0), TestSample(&["main", "idle"], 30_000_000, &[], 0)];
    for type_name in ["cpu", "off_cpu"] {
        assert_eq!(post(&serve.http, &[], &encoded(&window("checkout", type_name, &samples))).status, 200);
    }
    let page = get(&serve.http, "/api/profile?format=flamegraph").text();
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let exported: Value = serde_json::from_str(data).unwrap();
    // The values of the CPU profile count samples, the others are divided by the interval.
    for (type_name, expected) in [("cpu", 53), ("off_cpu", 53)] {
        let top: Value = serde_json::from_str(&get(&serve.http, &format!("/api/top?type={type_name}")).text()).unwrap();
        assert_eq!((&top["samples"], &top["stacks"]), (&json!(expected), &json!(2)), "{type_name}");
        let answer = |path: &str| -> Value {
            serde_json::from_str(&get(&serve.http, &format!("{path}type={type_name}")).text()).unwrap()
        };
        let [services, types, labels] = ["/api/services?", "/api/types?", "/api/labels?weights=1&"].map(answer);
        for count in [&services["services"][0], &types["types"][0], &labels].map(|it| &it["samples"]) {
            assert_eq!(*count, json!(expected), "{type_name}");
        }
        assert_eq!(labels["labels"][0]["samples"], json!(expected), "{type_name}");
        let profiles = exported["profiles"].as_array().unwrap();
        let profile = profiles.iter().find(|profile| profile["type"] == type_name).unwrap();
        let rows = profile["samples"].as_array().unwrap().chunks(4);
        assert_eq!(rows.map(|row| row[3].as_i64().unwrap()).sum::<i64>(), expected, "{type_name}");
    }
}
