//! `--redaction` of `check`, `convert` and `serve`.

use std::io::Read;

use flate2::read::GzDecoder;
use spanprof_profile::{Attribute, ProfilesData, Value};

use crate::client::post;
use crate::fixture::{encoded, number, shop, spanprof, Serve, TestDirectory};

#[test]
fn check_shows_the_texts_that_redaction_would_remove_and_changes_no_file() {
    let home = TestDirectory::new();
    let mut data = shop("checkout");
    let label = data.dictionary.attribute("password", Value::String("hunter2"), "");
    let attributes = data.dictionary.attribute_set(&[label]);
    data.resources[0].profiles[0].samples[0].attributes = attributes;
    data.resources[0].resource.push(Attribute::string("owner", "ann"));
    let bytes = encoded(&data);
    let profile = home.file("a.otlp.pb", &bytes);
    let rules = home.file(
        "rules.yaml",
        b"sample_rate: 50\nredaction_rules:\n  - {where: function, match: price, with: p}\n  - {where: resource, key: owner, action: drop}\n",
    );
    let check = spanprof(&["check", "--redaction", &rules, &profile]);
    assert_eq!(check.code, 1, "{check:?}");
    let lines: Vec<_> = check.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "function: `price` becomes `p`",
            "label_value password: `hunter2` becomes `[REDACTED]`",
            "resource owner: `ann` is removed",
            "3 different texts would be removed or replaced"
        ]
    );
    assert_eq!(std::fs::read(&profile).unwrap(), bytes);
    let json = spanprof(&["check", "--redaction", &rules, &profile, "--json"]);
    assert_eq!((json.code, number(&json.stdout, "count")), (1, 3), "{json:?}");
    let off = home.file("off.yaml", b"redaction: false\n");
    let none = spanprof(&["check", "--redaction", &off, &profile]);
    assert_eq!((none.code, none.stdout.as_str()), (0, "no text would be removed or replaced\n"), "{none:?}");
}

#[test]
fn the_documented_cases_hold_and_a_case_that_fails_is_shown() {
    let home = TestDirectory::new();
    let none = home.file("none.yaml", b"profiling: {redaction_rules: []}\n");
    let documented = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/guides/redaction-cases.yaml");
    let check = spanprof(&["check", "--redaction", &none, documented]);
    assert!(check.code == 0 && check.stdout.ends_with(" cases, 0 failed\n"), "{check:?}");
    assert!(number(&spanprof(&["check", "--redaction", &none, documented, "--json"]).stdout, "cases") > 150);
    let own = home.file(
        "own.yaml",
        b"redaction_cases:\n  - {text: card 4111, becomes: card XXXX, where: label_value}\n  - {text: hello}\n",
    );
    let check = spanprof(&["check", "--redaction", &none, &own]);
    let expected = "label_value: `card 4111` becomes `card 4111`, expected `card XXXX`\n3 cases, 1 failed\n";
    assert_eq!((check.code, check.stdout.as_str()), (1, expected), "{check:?}");
    let rule = b"profiling:\n  redaction_rules:\n    - {where: label_value, match: '[0-9]{4}', with: XXXX}\n";
    let rules = home.file("rules.yaml", rule);
    assert_eq!(spanprof(&["check", "--redaction", &rules, &own]).code, 0);
    let bad = home.file("bad.yaml", b"redaction_cases: [{txt: a}]\n");
    let check = spanprof(&["check", "--redaction", &rules, &bad]);
    assert!(check.code == 2 && check.stderr.contains("case 1: unknown key `txt`"), "{check:?}");
}

#[test]
fn invalid_rules_are_an_error_of_the_command_line() {
    let home = TestDirectory::new();
    let profile = home.file("a.otlp.pb", &encoded(&shop("checkout")));
    for (text, problem) in [
        ("[{where: function, match: '('}]", "rule 1: `match` is not a pattern"),
        ("redaction_rules: 7", "`redaction_rules` is not a list"),
        ("[7]", "rule 1: it must be a map of text"),
        ("just text", "it is neither a map nor a list"),
    ] {
        let rules = home.file("rules.yaml", text.as_bytes());
        let check = spanprof(&["check", "--redaction", &rules, &profile]);
        assert!(check.code == 2 && check.stderr.contains(problem), "{text}: {check:?}");
    }
    let absent = spanprof(&["check", "--redaction", "absent.yaml", &profile]);
    assert!(absent.code == 2 && absent.stderr.contains("absent.yaml cannot be used"), "{absent:?}");
}

/// A profile with a secret label and an owner.
fn with_secrets() -> ProfilesData {
    let mut data = shop("checkout");
    let label = data.dictionary.attribute("password", Value::String("hunter2"), "");
    let attributes = data.dictionary.attribute_set(&[label]);
    data.resources[0].profiles[0].samples[0].attributes = attributes;
    data.resources[0].resource.push(Attribute::string("owner", "ann-of-accounting"));
    data
}

const RULES: &[u8] =
    b"- {where: function, match: price, with: hidden_function}\n- {where: resource, key: owner, action: drop}\n";

#[test]
fn convert_redacts_by_the_rules_of_a_file() {
    let home = TestDirectory::new();
    let profile = home.file("a.otlp.pb", &encoded(&with_secrets()));
    let rules = home.file("rules.yaml", RULES);
    let written = |name: &str, more: &[&str]| {
        let output = home.path().join(name);
        let words = [&["convert", &profile, "-o", output.to_str().unwrap()][..], more].concat();
        let done = spanprof(&words);
        assert_eq!(done.code, 0, "{done:?}");
        (String::from_utf8_lossy(&std::fs::read(&output).unwrap()).into_owned(), output.to_str().unwrap().to_owned())
    };
    for name in ["b.otlp.pb", "b.json", "b.folded", "b.html"] {
        let (text, _) = written(name, &["--redaction", &rules]);
        assert!(
            text.contains("hidden_function") && !text.contains("hunter2") && !text.contains("accounting"),
            "{name}"
        );
    }
    let (_, pprof) = written("b.pb.gz", &["--redaction", &rules]);
    let check = spanprof(&["check", "--redaction", &rules, &pprof]);
    assert_eq!((check.code, check.stdout.as_str()), (0, "no text would be removed or replaced\n"), "{check:?}");
    let total = |source: &str| number(&spanprof(&["top", source, "--type", "cpu", "--json"]).stdout, "total");
    assert_eq!(total(&pprof), total(&profile));

    let invalid = home.file("invalid.yaml", b"[7]");
    let refused = spanprof(&["convert", &profile, "--redaction", &invalid, "-o", "/nonexistent/x.pb.gz"]);
    assert!(refused.code == 2 && refused.stderr.contains("rule 1: it must be a map"), "{refused:?}");
}

#[test]
fn serve_stores_no_text_that_its_rules_remove() {
    let home = TestDirectory::new();
    let rules = home.file("rules.yaml", RULES);
    let store = home.path().join("store");
    let serve = Serve::start(&store, &["--redaction", &rules]);
    assert_eq!(post(&serve.http, &[], &encoded(&with_secrets())).status, 200);
    let check = spanprof(&["check", "--redaction", &rules, &serve.url()]);
    assert_eq!((check.code, check.stdout.as_str()), (0, "no text would be removed or replaced\n"), "{check:?}");
    let top = spanprof(&["top", &serve.url(), "--type", "cpu", "--json"]);
    assert!(top.stdout.contains("hidden_function") && !top.stdout.contains("price"), "{top:?}");
    for entry in std::fs::read_dir(&store).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut plain = Vec::new();
            GzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_end(&mut plain).unwrap();
            let text = String::from_utf8_lossy(&plain);
            assert!(text.contains("hidden_function") && !text.contains("hunter2") && !text.contains("accounting"));
        }
    }
}
