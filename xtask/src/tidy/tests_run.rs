//! Rule: a test that exists is a test that runs. Tests for what only some interpreters have are chosen by a stated
//! capability (`skipif` with a reason), never switched off.

use super::{source, Finding};

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let lines = match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs" | "java" | "js" | "mjs" | "ts") => source::rust(text),
        Some("py") => source::hashed(text),
        _ => return Vec::new(),
    };
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code: String = line.code.split_whitespace().collect();
        let switched_off = [
            "#[ignore",
            "pytest.skip(",
            "pytest.mark.skip(",
            "mark.xfail",
            "unittest.skip(",
            "@Disabled",
            "it.skip(",
            "test.skip(",
        ]
        .into_iter()
        .find(|word| code.contains(word))
        .or(code.ends_with("pytest.mark.skip").then_some("pytest.mark.skip"));
        if let Some(word) = switched_off {
            findings.push(Finding::new(path, at + 1, format!("`{word}` switches a test off: mend it or remove it")));
        }
        if code.contains("skipif(") && !reason_follows(&lines[at..]) {
            findings.push(Finding::new(
                path,
                at + 1,
                "`skipif` without a `reason=`: name the capability that is missing",
            ));
        }
    }
    findings
}

fn reason_follows(lines: &[source::Line]) -> bool {
    lines.iter().take(6).any(|line| line.code.contains("reason="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_test_is_found_in_rust_and_python() {
        assert_eq!(check("core/src/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn x() {}").len(), 1);
        assert_eq!(check("t/test_a.py", "@pytest.mark.skip\ndef test_x(): pass").len(), 1);
        assert_eq!(check("t/test_a.py", "@pytest.mark.skip(reason='x')\ndef test_x(): pass").len(), 1);
        assert_eq!(check("t/test_a.py", "def test_x():\n    pytest.skip('x')").len(), 1);
    }

    #[test]
    fn a_capability_with_its_reason_may_choose() {
        assert!(check("t/test_a.py", "@pytest.mark.skipif(V < 12, reason='watchers came with 3.12')").is_empty());
        assert_eq!(check("t/test_a.py", "@pytest.mark.skipif(V < 12)").len(), 1);
    }

    #[test]
    fn a_text_that_speaks_of_it_is_no_switch() {
        assert!(check("xtask/src/a.rs", "let word = \"#[ignore\";").is_empty());
    }
}
