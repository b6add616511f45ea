//! Commands that answers propose: words of a shell, and patterns that select one function.

use spanprof_profile::code_origin::CodeOrigin;
use spanprof_read::query::{TopRow, TopTable};

use crate::function::printable;

/// Longest name in a pattern; of longer ones the ends are compared.
const MAX_PATTERN: usize = 48;

/// A regular expression for a name from a profile: what is special in one, or in a shell's quotes, is any character. Of a long
/// name both ends: the last part distinguishes `(anonymous) app.js:12` from other functions of the file.
pub(super) fn function_pattern(name: &str) -> String {
    let is_literal = |letter: char| letter.is_alphanumeric() || "_<>/#@,=".contains(letter);
    let letters = name.chars().map(|letter| if is_literal(letter) { letter } else { '.' });
    let letters: Vec<char> = letters.collect();
    let part = |letters: &[char]| letters.iter().collect::<String>();
    if letters.len() > MAX_PATTERN {
        format!("^{}.*{}$", part(&letters[..MAX_PATTERN / 2]), part(&letters[letters.len() - MAX_PATTERN / 2..]))
    } else {
        format!("^{}$", part(&letters))
    }
}

/// A word of a shell's command line.
pub fn quoted(word: &str) -> String {
    let word = printable(word);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:-=".contains(letter);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The commands that follow a top table: callers and source lines of its most expensive own function, or of the most expensive
/// function. `selection` has the sources and the filter, as words of a shell. `None` for an empty table.
pub fn after_top(table: &TopTable, selection: &str) -> Option<String> {
    let is_own = |row: &&TopRow| row.location.origin() == CodeOrigin::Own;
    let row = table.rows.iter().find(is_own).or_else(|| table.rows.first())?;
    let pattern = quoted(&function_pattern(&row.location.function));
    Some(if row.location.file.is_empty() {
        format!("next: spanprof peek {pattern} {selection}")
    } else {
        format!("next: spanprof peek {pattern} {selection}  ·  spanprof list {pattern} {selection}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::FrameType;
    use spanprof_read::query::{FunctionLine, Weight};

    #[test]
    fn the_most_expensive_own_function_follows_a_top_table() {
        let row = |function: &str, file: &str, frame_type| TopRow {
            location: FunctionLine {
                function: function.to_owned(),
                file: file.to_owned(),
                line: 3,
                frame_type,
                ..FunctionLine::default()
            },
            weight: Weight { flat: 1, cum: 1 },
            own: 0,
            with_native: 1,
        };
        let table = |rows| TopTable { rows, ..TopTable::default() };
        let selection = "'a profile.pb' --service cart";
        let own_row = |function| row(function, "/srv/shop/cart.py", FrameType::Cpython);
        let own = own_row("Cart.price(item)");
        let library = row("get", "/usr/lib/python3.11/queue.py", FrameType::Cpython);
        assert_eq!(
            after_top(&table(vec![library.clone(), own]), selection).unwrap(),
            "next: spanprof peek '^Cart.price.item.$' 'a profile.pb' --service cart  ·  \
             spanprof list '^Cart.price.item.$' 'a profile.pb' --service cart"
        );
        assert!(after_top(&table(vec![library]), "").unwrap().contains("peek '^get$'"));
        assert_eq!(after_top(&table(Vec::new()), ""), None);
        let nested = own_row("total.<locals>.<genexpr>");
        assert!(after_top(&table(vec![nested]), "")
            .unwrap()
            .starts_with("next: spanprof peek '^total.<locals>.<genexpr>$' "));
    }

    #[test]
    fn a_word_with_special_letters_is_quoted() {
        assert_eq!(quoted("a/b.pb"), "a/b.pb");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("$(id)"), "'$(id)'");
    }
}
