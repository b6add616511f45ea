//! The verbs that show parts of a profile: `tree`, `peek`, `list`, `labels`, `merge`, and the selection by stacks.

use serde_json::Value;

use crate::fixture::{encoded, number, shop, spanprof, window, TestDirectory, TestSample};

fn json(arguments: &[&str]) -> Value {
    let finished = spanprof(arguments);
    assert_eq!(finished.code, 0, "{arguments:?}: {finished:?}");
    serde_json::from_str(&finished.stdout).expect("JSON")
}

#[test]
fn the_tree_has_the_most_expensive_calls_first_and_counts_the_rest() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let tree = spanprof(&["tree", &file]).stdout;
    let columns = |line: &str| line.split_once("  /srv").map(|(start, _)| start.to_owned()).unwrap_or_default();
    let lines: Vec<String> = tree.lines().skip(2).map(columns).collect();
    assert_eq!(
        lines,
        [
            "    1.00 s 100.0%          0  main",
            "    1.00 s 100.0%          0    serve",
            "    700 ms  70.0%          0      cart",
            "    500 ms  50.0%     500 ms        price",
            "    200 ms  20.0%     200 ms        render",
            "    300 ms  30.0%          0      pay",
            "    300 ms  30.0%     300 ms        price",
        ],
        "{tree}"
    );
    let pruned = json(&["tree", &file, "--min-share", "40%", "--json"]);
    let rows = pruned["rows"].as_array().unwrap();
    let row = |nth: usize| (rows[nth]["function"].as_str().unwrap(), rows[nth]["omitted"].as_u64().unwrap());
    assert_eq!([row(1), row(2), row(3)], [("serve", 1), ("cart", 1), ("price", 0)]);
    assert_eq!((rows.len(), pruned["total"].as_i64()), (4, Some(1_000_000_000)));
    assert_eq!(json(&["tree", &file, "--depth", "2", "--json"])["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn peek_shows_callers_and_callees() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let price = &json(&["peek", "^price$", &file, "--json"])["functions"][0];
    assert_eq!((price["flat"].as_i64(), price["cum"].as_i64()), (Some(800_000_000), Some(800_000_000)));
    let callers: Vec<_> =
        price["callers"].as_array().unwrap().iter().map(|row| (&row["function"], &row["weight"])).collect();
    assert_eq!(callers, [(&"cart".into(), &500_000_000.into()), (&"pay".into(), &300_000_000.into())]);
    assert_eq!(price["callees"].as_array().map(Vec::len), Some(0));
    let text = spanprof(&["peek", "cart", &file]).stdout;
    assert!(text.contains("cart  /srv/checkout/app.py\n  flat 0 0.0%, cum 700 ms 70.0% of 1.00 s"), "{text}");
    assert!(text.contains("      500 ms  71.4%  price") && text.contains("      700 ms 100.0%  serve"), "{text}");
    let absent = spanprof(&["peek", "absent", &file]);
    assert!(absent.code == 1 && absent.stderr.contains("no function of the type cpu matches `absent`"), "{absent:?}");
    let invalid = spanprof(&["peek", "price(", &file]);
    assert!(invalid.code == 2 && invalid.stderr.contains("group"), "{invalid:?}");
}

#[test]
fn list_shows_the_source_lines_with_their_cost() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    std::fs::create_dir(home.path().join("checkout")).unwrap();
    let source: String = (1..=20).map(|line| format!("\tline_{line}()\n")).collect();
    home.file("checkout/app.py", source.as_bytes());
    let listing = spanprof(&["list", "^price$", &file, "--source-path", home.path().to_str().unwrap()]).stdout;
    let lines: Vec<&str> = listing.lines().collect();
    assert_eq!(lines[..2], ["price  /srv/checkout/app.py", "800 ms 80.0% of cpu: flat, cum, line"]);
    assert_eq!(lines.len(), 2 + 7, "three lines before and after: {listing}");
    assert_eq!(lines[5], "    800 ms     800 ms     12      line_12()", "{listing}");
    assert_eq!(lines[2], "         ·          ·      9      line_9()", "{listing}");
    let without = spanprof(&["list", "price", &file]).stdout;
    assert!(without.contains("    800 ms     800 ms     12\n") && without.contains("--source-path"), "{without}");
    let line = &json(&["list", "price", &file, "--json"])["functions"][0]["lines"][0];
    assert_eq!((line["line"].as_i64(), line["flat"].as_i64()), (Some(12), Some(800_000_000)));
}

#[test]
fn list_finds_the_source_of_a_class_by_its_package() {
    let home = TestDirectory::new();
    let package = home.path().join("shop/src/main/java/org/shop");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("Shop.java"), "class Shop {\n  // the hot line\n}\n").unwrap();
    let file = home.file(
        "java.speedscope.json",
        br#"{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[
            {"name":"org.shop.Shop$Cart.price","file":"Shop.java","line":2},
            {"name":"org...Shop.price","file":"Shop.java","line":2}]},
            "profiles":[{"type":"sampled","unit":"none","samples":[[0],[1]],"weights":[3,1]}]}"#,
    );
    let listing = |root: &str| {
        let root = home.path().join(root);
        spanprof(&["list", "price", &file, "--only-source-path", "--source-path", root.to_str().unwrap()]).stdout
    };
    for root in ["shop", "shop/src/main/java"] {
        let text = listing(root);
        assert_eq!(text.matches("the hot line").count(), 1, "{root}: {text}");
        assert!(text.contains("the file is not on this machine"), "a name that leads out of the root: {text}");
    }
    assert!(!listing("shop/src").contains("the hot line"));
}

#[test]
fn labels_are_listed_with_their_number_of_values() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let table = json(&["labels", &file, "--json"]);
    assert_eq!((table["samples"].as_i64(), table["series"].as_i64()), (Some(100), Some(2)));
    let endpoint = &table["labels"][0];
    assert_eq!(
        (&endpoint["label"], &endpoint["count"], &endpoint["samples"]),
        (&"endpoint".into(), &2.into(), &100.into())
    );
    assert_eq!(endpoint["values"][0].to_string(), r#"{"value":"/cart","weight":700000000}"#);
    let text = spanprof(&["labels", &file, "-n", "1"]).stdout;
    assert!(text.starts_with("cpu: 1.00 s in 100 samples, 2 series\n"), "{text}");
    assert!(text.contains("       2   100.0%  endpoint\n") && text.contains("… and 1 more"), "{text}");
    assert!(text.contains("service.name  (resource)"), "{text}");
}

#[test]
fn focus_and_ignore_select_stacks() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let total = |flags: &[&str]| number(&spanprof(&[&["top", &file, "--json"], flags].concat()).stdout, "total");
    assert_eq!(total(&["--focus", "^cart$"]), 700_000_000);
    assert_eq!(total(&["--focus", "^cart$", "--ignore", "render"]), 500_000_000);
    assert_eq!(total(&["--ignore", "(?i)CART"]), 300_000_000);
    let none = spanprof(&["top", &file, "--ignore", "app[.]py"]);
    assert!(none.code == 1 && none.stderr.contains("no stack passes --focus and --ignore"), "{none:?}");
}

#[test]
fn merge_writes_one_file_in_the_format_of_its_name() {
    let home = TestDirectory::new();
    let first = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let second = home.file("b.otlp.pb", &encoded(&shop("checkout")));
    for name in ["all.pb.gz", "all.otlp.pb.gz", "all.folded"] {
        let out = home.path().join(name).to_str().unwrap().to_owned();
        let merged = spanprof(&["merge", &first, &second, "-o", &out]);
        assert_eq!(merged.code, 0, "{merged:?}");
        let top = spanprof(&["top", &out, "--json"]);
        assert_eq!(number(&top.stdout, "total"), 2_000_000_000, "{name}: {top:?}");
    }
    let unknown = spanprof(&["merge", &first, &second, "-o", "all.xyz"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("format is unknown"), "{unknown:?}");
}

#[test]
fn convert_writes_speedscope_and_svg_by_the_name_of_the_output() {
    let home = TestDirectory::new();
    let file = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    let written = |name: &str| {
        let out = home.path().join(name).to_str().unwrap().to_owned();
        let convert = spanprof(&["convert", &file, "-o", &out]);
        assert_eq!(convert.code, 0, "{convert:?}");
        std::fs::read_to_string(out).unwrap()
    };
    let speedscope: Value = serde_json::from_str(&written("a.speedscope.json")).unwrap();
    assert_eq!(speedscope["profiles"][0]["endValue"], 1_000_000_000);
    assert_eq!(speedscope["profiles"][0]["samples"].as_array().map(Vec::len), Some(3));
    let image = written("a.svg");
    assert!(image.contains("<title>cart  /srv/checkout/app.py  700 ms  70.0%</title>"), "{image}");
}

#[test]
fn completions_name_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let script = spanprof(&["completions", shell]).stdout;
        assert!(["flamegraph", "peek", "fail-over"].iter().all(|word| script.contains(word)), "{shell}");
    }
}

#[test]
fn top_charges_libraries_to_their_own_callers_and_sorts_by_it() {
    let home = TestDirectory::new();
    let file = home.file(
        "own.speedscope.json",
        br#"{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[
            {"name":"handle","file":"/srv/shop/app.js"},{"name":"price","file":"/srv/shop/price.js"},
            {"name":"next","file":"/srv/shop/node_modules/express/router.js"},{"name":"(garbage collector)"}]},
            "profiles":[{"type":"sampled","name":"t","unit":"milliseconds","samples":[[0,2],[0,2,1],[0,1,2],[3]],
            "weights":[50,10,20,20],"startValue":0,"endValue":100}]}"#,
    );
    let table = spanprof(&["top", &file, "--sort", "own"]).stdout;
    let lines: Vec<&str> = table.lines().map(|line| line.split("  /").next().unwrap_or_default()).collect();
    assert_eq!(
        lines,
        [
            "time: 100 ms in 4 stacks, 4 functions, 20.0% without own code",
            "    flat  flat%      own   own%      cum   cum%  function",
            "       0   0.0%  50.0 ms  50.0%  80.0 ms  80.0%  handle",
            " 10.0 ms  10.0%  30.0 ms  30.0%  30.0 ms  30.0%  price",
            " 70.0 ms  70.0%        0   0.0%  80.0 ms  80.0%  next",
            " 20.0 ms  20.0%        0   0.0%  20.0 ms  20.0%  (garbage collector)",
        ],
        "{table}"
    );
    let json = json(&["top", &file, "--json"]);
    assert_eq!((json["own"].as_i64(), json["total"].as_i64()), (Some(80_000_000), Some(100_000_000)));
    assert_eq!((&json["rows"][0]["function"], &json["rows"][0]["own"]), (&"next".into(), &0.into()));
}

#[test]
fn native_code_has_its_self_time_and_counts_for_the_line_that_called_it() {
    const BLAS: &str = "dgemm_kernel /venv/lib/python3.11/site-packages/numpy.libs/libopenblas.so";
    let home = TestDirectory::new();
    let file = |name: &str, samples: &[TestSample<'_>]| home.file(name, &encoded(&window("shop", "cpu", samples)));
    let sample = |stack, seconds: i64| TestSample(stack, seconds * 1_000_000_000, &[], 0);
    let after = file("after.pb", &[sample(&["main", "predict", BLAS], 12), sample(&["main", "predict"], 8)]);
    let top = spanprof(&["top", &after]).stdout;
    let row = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(row(&top, "dgemm_kernel").starts_with("12.0 s 60.0% 0 0.0% 12.0 s 60.0% "), "{top}");
    let predict = "8.00 s 40.0% 20.0 s 100.0% 20.0 s 100.0% predict /srv/shop/app.py + 60.0% in native code";
    assert_eq!(row(&top, "predict"), predict);
    let list = spanprof(&["list", "^predict$", &after]).stdout;
    assert_eq!(row(&list, " 12"), "20.0 s 20.0 s 12", "{list}");
    // As before native frames were recorded.
    let before = file("before.pb", &[sample(&["main", "predict"], 20)]);
    let gate = spanprof(&["diff", &before, &after, "--fail-over", "1%", "--all"]);
    assert_eq!(gate.code, 0, "{gate:?}");
    assert!(gate.stdout.contains("count for their callers: the baseline has processes without any"), "{gate:?}");
    assert!(!gate.stdout.contains("dgemm_kernel"), "{gate:?}");
    let same = spanprof(&["diff", &after, &after]).stdout;
    assert!(!same.contains("native") && same.contains("3 without a difference"), "{same}");
}
