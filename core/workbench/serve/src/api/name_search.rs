//! The search of the page: by name and file of functions, without case. `flamegraph.js` has the same rules.

use regex_lite::{Regex, RegexBuilder};
use spanprof_read::query;

/// Text, or an expression that is written as `/expression/`.
pub(crate) enum NameSearch {
    Text(String),
    Expression(Regex),
}

impl NameSearch {
    /// `None` for blank text, which selects everything. An invalid expression is searched as text: it may be incomplete.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let inner = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).filter(|inner| !inner.is_empty());
        let expression = inner.and_then(|inner| RegexBuilder::new(inner).case_insensitive(true).build().ok());
        match expression {
            Some(expression) => Some(Self::Expression(expression)),
            None => (!text.is_empty()).then(|| Self::Text(text.to_lowercase())),
        }
    }

    /// Whether the name or the file of a function contains the text; an expression is also matched with `name file:line`.
    pub(crate) fn matches(&self, name: &str, file: &str, line: i64) -> bool {
        match self {
            Self::Text(searched) => [name, file].iter().any(|text| text.to_lowercase().contains(searched)),
            Self::Expression(expression) => query::is_match(expression, name, file, line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_expressions_match_names_and_files_without_case_and_expressions_the_start_line() {
        let matches =
            |text: &str| NameSearch::parse(text).map(|search| search.matches("Cart.price", "/srv/Shop.java", 12));
        for text in
            ["price", " PRICE ", "shop.JAVA", "/^cart[.]/", "/[.]java$/", "/srv/", "/^cart.price /srv/shop.java:12$/"]
        {
            assert_eq!(matches(text), Some(true), "{text}");
        }
        for text in ["prices", "/^price/", "/(/", "//", "/^cart.price /srv/shop.java:1$/"] {
            assert_eq!(matches(text), Some(false), "{text}");
        }
        assert_eq!((matches(""), matches("  ")), (None, None));
    }
}
