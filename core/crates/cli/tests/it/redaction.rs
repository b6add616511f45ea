//! `spanprof check --redaction`.

use spanprof_profile::{Attribute, Value};

use crate::fixture::{encoded, number, shop, spanprof, TestDirectory};

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
