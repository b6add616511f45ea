//! Parses and formats URL query strings. Called by the HTTP API and by the verbs that query a running server.

/// Pairs of a query string, decoded. Invalid UTF-8 becomes the replacement character.
pub(crate) fn parse(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// A query string of pairs.
pub(crate) fn format<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.join("&")
}

fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let digit = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            (b'+', _, _) => out.push(b' '),
            _ => out.push(*byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
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
