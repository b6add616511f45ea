//! Links of the page to a trace in a tracing system: values of the flag `--trace-url`. The page replaces the placeholders.

use spanprof_answers::failure::Failure;

const PLACEHOLDERS: [&str; 2] = ["trace_id", "span_id"];
const EXAMPLE: &str = "http://localhost:16686/trace/{trace_id} or Jaeger=http://localhost:16686/trace/{trace_id}";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceUrl {
    /// Text of the link. `None` for the usual text of the page.
    pub name: Option<String>,
    /// Address with `{trace_id}` and, where the tracing system can show a span, `{span_id}`.
    pub url: String,
}

impl TraceUrl {
    /// Parses `URL` or `NAME=URL`. The URL may contain `=`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, url) = match text.split_once('=') {
            Some((name, url)) if !is_link(text) && is_link(url) => (Some(name), url),
            _ => (None, text),
        };
        if !is_link(url) {
            return Err(format!("expected http:// or https://, such as {EXAMPLE}"));
        }
        if let Some(name) = name.filter(|name| !is_name(name)) {
            return Err(format!("expected a name of ASCII letters, digits, spaces, `_` and `-`, got `{name}`"));
        }
        if let Some(unknown) = placeholders(url).find(|name| !PLACEHOLDERS.contains(name)) {
            return Err(format!("expected the placeholders {{trace_id}} and {{span_id}} only, got {{{unknown}}}"));
        }
        if !url.contains("{trace_id}") {
            return Err(format!("expected a link with {{trace_id}}, such as {EXAMPLE}"));
        }
        Ok(Self { name: name.map(|name| name.trim().to_owned()), url: url.to_owned() })
    }
}

/// Refuses links that look alike on the page.
pub fn refuse_repeated_names(links: &[TraceUrl]) -> Result<(), Failure> {
    let is_repeated =
        |(index, link): &(usize, &TraceUrl)| links[..*index].iter().any(|earlier| earlier.name == link.name);
    match links.iter().enumerate().find(is_repeated) {
        None => Ok(()),
        Some((_, link)) => {
            let got = link.name.as_ref().map_or("two without a name".to_owned(), |name| format!("`{name}` twice"));
            Err(Failure::usage(format!("--trace-url: expected a different name for each link, got {got}"))
                .hint("name the links: --trace-url NAME=http://…"))
        }
    }
}

fn is_link(text: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme))
}

fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'_' | b'-');
    !text.trim().is_empty() && text.bytes().all(is_allowed)
}

/// The identifiers in braces. Other braces belong to the URL, such as those of JSON in an address of Grafana.
fn placeholders(url: &str) -> impl Iterator<Item = &str> {
    let is_identifier = |text: &&str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    };
    url.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(inner, _)| inner).filter(is_identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JAEGER: &str = "http://localhost:16686/trace/{trace_id}?uiFind={span_id}";
    const TEMPO: &str =
        r#"https://grafana.example/explore?schemaVersion=1&panes={"t":{"queries":[{"query":"{trace_id}"}]}}"#;

    #[test]
    fn a_name_is_what_stands_before_the_link() {
        for (text, name, url) in [
            (JAEGER.to_owned(), None, JAEGER),
            (format!("Jaeger={JAEGER}"), Some("Jaeger"), JAEGER),
            (format!("Grafana Tempo_2-eu={TEMPO}"), Some("Grafana Tempo_2-eu"), TEMPO),
            (format!(" Tempo ={TEMPO}"), Some("Tempo"), TEMPO),
            (TEMPO.to_owned(), None, TEMPO),
            // The first `=` belongs to the link.
            ("http://go.example/?to=http://a/{trace_id}".to_owned(), None, "http://go.example/?to=http://a/{trace_id}"),
        ] {
            let expected = TraceUrl { name: name.map(str::to_owned), url: url.to_owned() };
            assert_eq!(TraceUrl::parse(&text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_unusable_template_is_refused_with_the_expected_and_the_actual_value() {
        for (text, error) in [
            ("", "expected http:// or https://, such as"),
            ("Jaeger", "expected http:// or https://, such as"),
            ("Jaeger=localhost:16686/trace/{trace_id}", "expected http:// or https://, such as"),
            ("javascript:alert('{trace_id}')", "expected http:// or https://, such as"),
            ("Jäger=http://a/{trace_id}", "expected a name of ASCII letters, digits, spaces, `_` and `-`, got `Jäger`"),
            ("=http://a/{trace_id}", "spaces, `_` and `-`, got ``"),
            (" =http://a/{trace_id}", "spaces, `_` and `-`, got ` `"),
            ("http://a/{traceId}", "expected the placeholders {trace_id} and {span_id} only, got {traceId}"),
            ("http://a/{trace_id}?span=${__span.id}", "only, got {__span.id}"),
            ("http://a/{span_id}", "expected a link with {trace_id}, such as http://localhost:16686/trace/{trace_id}"),
            ("Zipkin=http://localhost:9411/zipkin", "expected a link with {trace_id}"),
        ] {
            let refused = TraceUrl::parse(text).unwrap_err();
            assert!(refused.contains(error), "{text}: {refused}");
        }
    }

    #[test]
    fn links_have_different_names() {
        let links = |texts: &[&str]| texts.iter().map(|text| TraceUrl::parse(text).unwrap()).collect::<Vec<_>>();
        let (jaeger, tempo) = (format!("Jaeger={JAEGER}"), format!("Tempo={TEMPO}"));
        assert_eq!(refuse_repeated_names(&links(&[JAEGER, &jaeger, &tempo])), Ok(()));
        let repeated = refuse_repeated_names(&links(&[&jaeger, &tempo, &jaeger])).unwrap_err();
        assert!(repeated.message.ends_with("got `Jaeger` twice"), "{repeated}");
        let unnamed = refuse_repeated_names(&links(&[JAEGER, TEMPO])).unwrap_err();
        assert!(unnamed.message.ends_with("got two without a name"), "{unnamed}");
    }
}
