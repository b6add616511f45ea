//! Parses and formats URL query strings. Called by the HTTP API and by the verbs that query a running server.

/// Pairs of a query string, decoded. Invalid UTF-8 becomes the replacement character.
pub fn parse(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// A query string of pairs.
pub fn format<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_pairs_parse_back() {
        let pairs = [("label", "endpoint=/a&b+c %41é"), ("label", ""), ("service", "100%")];
        let written = format(pairs);
        let read = parse(&written);
        assert_eq!(read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>(), pairs);
    }

    #[test]
    fn invalid_escapes_are_kept_verbatim() {
        assert_eq!(
            parse("a=%4&b=%zz&c=%&&d"),
            [
                ("a".to_owned(), "%4".to_owned()),
                ("b".to_owned(), "%zz".to_owned()),
                ("c".to_owned(), "%".to_owned()),
                ("d".to_owned(), String::new()),
            ]
        );
        assert_eq!(parse("x=%ff+%E2%82"), [("x".to_owned(), "\u{fffd} \u{fffd}".to_owned())]);
    }
}
