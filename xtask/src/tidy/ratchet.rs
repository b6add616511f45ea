//! Compares the occurrences of a term with the count allowed for it in a list, `TERM COUNT` per line. A larger count is a
//! violation; a smaller one is reported, so that the list is lowered. A term without a line is not allowed.

use std::collections::BTreeMap;

use super::{TidyReport, Violation};

/// Occurrences of one term: path and line of each.
pub type Places = Vec<(String, usize)>;

/// Files named in the message of a violation.
const FILES_SHOWN: usize = 12;

/// Reads a list; lines that begin with `#` are comments.
pub fn parse(list: &str) -> BTreeMap<&str, usize> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.trim().rsplit_once(' '))
        .filter_map(|(term, count)| Some((term, count.parse().ok()?)))
        .collect()
}

/// Compares `found` with the list in the file `path`; `advice` returns the way to remove a term.
pub fn compare(
    path: &str,
    list: &str,
    found: &BTreeMap<String, Places>,
    advice: impl Fn(&str) -> String,
) -> TidyReport {
    let allowed = parse(list);
    let mut report = TidyReport::default();
    for (term, places) in found {
        let (count, allowed) = (places.len(), allowed.get(term.as_str()).copied().unwrap_or(0));
        if count > allowed {
            let message = format!("`{term}`: {count} found, {allowed} allowed; {}; in {}", advice(term), files(places));
            report.violations.push(Violation::new(path, 0, message));
        }
    }
    for (term, allowed) in allowed {
        let count = found.get(term).map_or(0, Vec::len);
        if count < allowed {
            report.notices.push(format!("{path}: `{term}` fell to {count}, {allowed} allowed"));
        }
    }
    report
}

/// The list with each count lowered to what was found; terms that are gone lose their line.
pub fn lowered(list: &str, found: &BTreeMap<String, Places>) -> String {
    let lines = list.lines().filter_map(|line| {
        let Some((term, allowed)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) else {
            return Some(line.to_owned());
        };
        let count = found.get(term).map_or(0, Vec::len).min(allowed.parse().ok()?);
        (count > 0).then(|| format!("{term} {count}"))
    });
    lines.map(|line| line + "\n").collect()
}

fn files(places: &[(String, usize)]) -> String {
    let mut counts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, line) in places {
        counts.entry(path).or_default().push(line.to_string());
    }
    let more = counts.len().saturating_sub(FILES_SHOWN);
    let shown = counts.iter().take(FILES_SHOWN).map(|(path, lines)| format!("{path}:{}", lines.join(",")));
    let mut shown = shown.collect::<Vec<_>>().join(", ");
    if more > 0 {
        shown += &format!(", and {more} more files");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# Counts.\ndoor 2\nthe hand 1\n";

    fn found(counts: &[(&str, usize)]) -> BTreeMap<String, Places> {
        counts.iter().map(|&(term, count)| (term.to_owned(), vec![("a.rs".to_owned(), 7); count])).collect()
    }

    fn compared(counts: &[(&str, usize)]) -> TidyReport {
        compare("list.txt", LIST, &found(counts), |_| "use another".to_owned())
    }

    #[test]
    fn a_count_that_grows_is_a_violation_and_names_the_places() {
        let report = compared(&[("door", 3), ("the hand", 1)]);
        assert_eq!(report.violations.len(), 1);
        let message = &report.violations[0].message;
        assert!(message.contains("3 found, 2 allowed; use another; in a.rs:7,7,7"), "{message}");
    }

    #[test]
    fn a_term_without_a_line_is_not_allowed() {
        assert_eq!(compared(&[("bell", 1), ("door", 2), ("the hand", 1)]).violations.len(), 1);
    }

    #[test]
    fn a_count_that_fell_is_reported_and_lowers_the_list() {
        let report = compared(&[("door", 1)]);
        assert!(report.violations.is_empty());
        assert_eq!(report.notices.len(), 2);
        assert!(report.notices[0].contains("`door` fell to 1, 2 allowed"));
        assert_eq!(lowered(LIST, &found(&[("door", 1)])), "# Counts.\ndoor 1\n");
    }

    #[test]
    fn lowering_never_raises_a_count() {
        assert_eq!(lowered(LIST, &found(&[("door", 5), ("the hand", 1)])), LIST);
    }
}
