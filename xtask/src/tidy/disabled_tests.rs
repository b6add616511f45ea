//! Rule: no test is disabled. A test of a feature that some interpreters lack is selected by a stated capability (`skipif`
//! with a reason).

use super::{source, Violation};

pub fn check(path: &str, text: &str) -> Vec<Violation> {
    let lines = match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs" | "java" | "js" | "mjs" | "ts") => source::rust(text),
        Some("py") => source::hashed(text),
        _ => return Vec::new(),
    };
    let mut violations = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code: String = line.code.split_whitespace().collect();
        let disabled = [
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
        if let Some(word) = disabled {
            violations.push(Violation::new(
                path,
                index + 1,
                format!("`{word}` disables a test: repair it or remove it"),
            ));
        }
        if code.contains("skipif(") && !reason_follows(&lines[index..]) {
            violations.push(Violation::new(
                path,
                index + 1,
                "`skipif` without a `reason=`: name the capability that is missing",
            ));
        }
    }
    violations
}

fn reason_follows(lines: &[source::SourceLine]) -> bool {
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
    fn a_capability_with_its_reason_may_select() {
        assert!(check("t/test_a.py", "@pytest.mark.skipif(V < 12, reason='watchers came with 3.12')").is_empty());
        assert_eq!(check("t/test_a.py", "@pytest.mark.skipif(V < 12)").len(), 1);
    }

    #[test]
    fn a_string_literal_disables_no_test() {
        assert!(check("xtask/src/a.rs", "let word = \"#[ignore\";").is_empty());
    }
}
