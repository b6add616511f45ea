//! Rule: comments, test names, file names and documents use the terms of the field. Each word below has a standard term
//! beside it. Uses that remain are counted in `counts/words.txt`, and the counts only fall.

use std::collections::BTreeMap;

use super::prose::{self, Word};
use super::ratchet::Places;
use super::source;

/// Words and phrases, and the term to use in their place.
const BANNED: [(&[&str], &str); 20] = [
    (&["room", "rooms", "house", "houses"], "module, crate, package, directory"),
    (&["door", "doors"], "entry point, FFI boundary, callback"),
    (&["bell", "bells"], "wakeup, notify"),
    (&["the hand"], "eviction (CLOCK)"),
    (&["ask ahead", "asks ahead", "asked ahead"], "prefetch"),
    (&["the furthest"], "saturates, clamps"),
    (&["run by itself", "run by themselves", "runs by itself"], "free-running, re-armed"),
    (&["crowd", "crowded", "crowds"], "CPU contention, oversubscribed"),
    (&["written-down", "written down", "written place"], "debug info, scope descriptor"),
    (&["whose an"], "attribute, attribution"),
    (&["sample saw", "samples saw"], "unattributed CPU time"),
    (&["dear", "dearer", "dearest"], "expensive, costs N ns"),
    (&["tell", "tells", "telling", "told"], "reports, exposes, returns, logs"),
    (&["say", "says", "saying", "said"], "reports, states, returns, logs"),
    (&["speak", "speaks", "speaking", "spoke"], "supports, implements, sends"),
    (&["ask", "asks", "asking", "asked"], "queries, requests, polls"),
    (&["look at", "looks at", "looked at", "looking at"], "polls, reads, inspects"),
    (&["know", "knows", "knew"], "stores, has, supports"),
    (&["want", "wants", "wanted"], "requires, expects"),
    (&["goes on doing", "whoever", "whatever"], "name the thing"),
];

/// A sentence that opens with `What` is a free relative clause in place of a noun.
const FREE_RELATIVE: &str = "What …";

/// Functions of the FFI boundary have one name, `ffi_guard`.
const BANNED_FUNCTIONS: [&str; 4] = ["fn quiet", "fn raising", "fn through", "fn catching"];

/// Adds the banned words of one file to `found`.
pub fn collect(path: &str, text: &str, found: &mut BTreeMap<String, Places>) {
    let words = prose::words(path, text);
    for (at, word) in words.iter().enumerate() {
        for term in BANNED.iter().flat_map(|(terms, _)| *terms) {
            if begins_with(&words[at..], term) {
                found.entry((*term).to_owned()).or_default().push((path.to_owned(), word.line));
            }
        }
        if word.opens_sentence && word.text == "what" && !is_question(text, word.line) {
            found.entry(FREE_RELATIVE.to_owned()).or_default().push((path.to_owned(), word.line));
        }
    }
    if path.ends_with(".rs") {
        for (at, line) in source::rust(text).iter().enumerate() {
            let name = |term: &&str| line.code.split_once(*term).is_some_and(|(_, rest)| rest.starts_with(['(', '<']));
            if let Some(term) = BANNED_FUNCTIONS.iter().find(|term| name(term)) {
                found.entry((*term).to_owned()).or_default().push((path.to_owned(), at + 1));
            }
        }
    }
}

/// The term to use in place of `term`.
pub fn advice(term: &str) -> String {
    let instead = BANNED.iter().find(|(terms, _)| terms.contains(&term)).map(|(_, instead)| *instead);
    match term {
        FREE_RELATIVE => "begin with a noun or a verb".to_owned(),
        _ => format!("use: {}", instead.unwrap_or("ffi_guard")),
    }
}

fn begins_with(words: &[Word], term: &str) -> bool {
    let mut rest = words.iter();
    term.split(' ').all(|part| rest.next().is_some_and(|word| word.text.trim_end_matches('.') == part))
}

fn is_question(text: &str, line: usize) -> bool {
    text.lines().nth(line.saturating_sub(1)).is_some_and(|line| line.contains('?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(path: &str, text: &str) -> Vec<(String, usize)> {
        let mut found = BTreeMap::new();
        collect(path, text, &mut found);
        found.into_iter().map(|(term, places)| (term, places.len())).collect()
    }

    #[test]
    fn a_banned_word_is_found_in_comments_test_names_and_documents() {
        let expected = [("told".to_owned(), 1)];
        assert_eq!(terms("a.rs", "/// Is told of it."), expected);
        assert_eq!(terms("a.rs", "#[test]\nfn a_thread_is_told() {}"), expected);
        assert_eq!(terms("a.md", "It is told."), expected);
        assert_eq!(terms("a.py", "# It is told."), expected);
        assert_eq!(terms("told.rs", ""), expected);
    }

    #[test]
    fn a_phrase_is_found_across_lines_and_not_across_texts() {
        assert_eq!(terms("a.rs", "// It looks\n// at one."), [("looks at".to_owned(), 1)]);
        assert!(terms("a.rs", "// It looks\nlet x = 1;\n// at one.").is_empty());
    }

    #[test]
    fn longer_words_code_and_quotes_are_not_found() {
        assert!(
            terms("a.rs", "// An in-house ring buffer; `told`, \"asks\", foretold.\nlet told = asks(room);").is_empty()
        );
        assert!(terms("a.md", "```\nsays hello\n```\n").is_empty());
    }

    #[test]
    fn a_sentence_that_opens_with_what_is_found_and_a_question_is_not() {
        assert_eq!(terms("a.rs", "/// What a page holds."), [("What …".to_owned(), 1)]);
        assert_eq!(terms("a.rs", "/// Size.\n/// What a page holds."), [("What …".to_owned(), 1)]);
        assert!(terms("a.md", "What does it cost?").is_empty());
        assert!(terms("a.rs", "/// The page that defines what a row holds.").is_empty());
    }

    #[test]
    fn a_guard_function_with_a_banned_name_is_found() {
        assert_eq!(terms("a.rs", "pub fn quiet<T>(f: T) {}"), [("fn quiet".to_owned(), 1)]);
        assert!(terms("a.rs", "fn quieter() {}").is_empty());
    }

    #[test]
    fn each_term_has_advice() {
        for (list, _) in BANNED {
            list.iter().for_each(|term| assert!(advice(term).starts_with("use: ")));
        }
    }
}
