//! The default patterns: texts that are secrets by their form. Patterns for all texts match nothing that occurs in names of
//! functions and files of ordinary programs; the others apply to values only.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex_lite::Regex;

use super::sensitive_key::is_secret;
use super::REDACTED;

struct SecretPattern {
    /// One of these occurs in every text that matches; searched first, since most texts contain none.
    needles: &'static [&'static str],
    pattern: &'static str,
    replacement: &'static str,
    compiled: OnceLock<Option<Regex>>,
}

/// A name that contains a word of `sensitive_key`.
macro_rules! key {
    () => {
        concat!(
            r"[a-z0-9_.-]*(?:pass(?:word|wd|phrase|code)|pwd|secret|credential|token|(?:api|access|private)[_.-]?key",
            r"|authorization|cookie)[a-z0-9_.-]*"
        )
    };
}
/// A text in quotes, which may be cut off.
macro_rules! quoted {
    () => {
        r#""(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?"#
    };
}
/// A parameter of HTTP authentication: `nonce="x"`.
macro_rules! parameter {
    () => {
        r#"[a-z0-9_-]+=(?:"[^"]*"?|[^\s,"'&]+)"#
    };
}

const fn pattern(needles: &'static [&'static str], pattern: &'static str, replacement: &'static str) -> SecretPattern {
    SecretPattern { needles, pattern, replacement, compiled: OnceLock::new() }
}

/// For every text.
static ANYWHERE: [SecretPattern; 6] = [
    // User and password of a URL (RFC 3986, 3.2.1).
    pattern(&["://"], r"(://)[^\s/?#@]*@(?:[^\s/?#@]*@)*", "${1}[REDACTED]@"),
    // JSON Web Token (RFC 7519): base64url of `{"`.
    pattern(&["eyJ"], r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*", REDACTED),
    // Access key ids of AWS (IAM user guide, "Unique identifiers").
    pattern(&["AKIA", "ASIA"], r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", REDACTED),
    // Private keys (RFC 7468).
    pattern(&["PRIVATE KEY"], r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*", REDACTED),
    // Tokens of GitHub, GitLab, Slack, Stripe, Google and DigitalOcean, by their documented prefixes.
    pattern(
        &["gh", "github_pat_", "glpat-", "xox", "xapp-", "k_live_", "AIza", "ya29.", "GOCSPX-", "_v1_"],
        concat!(
            r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}",
            r"|(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}|[rs]k_live_[A-Za-z0-9]{16,}|AIza[A-Za-z0-9_-]{35}",
            r"|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}|do[opr]_v1_[a-f0-9]{32,})"
        ),
        REDACTED,
    ),
    // Tokens of npm, PyPI, SendGrid, Hugging Face, OpenAI, Anthropic and others that begin with `sk-`.
    pattern(
        &["npm_", "pypi-", "SG.", "hf_", "sk-"],
        concat!(
            r"\b(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}",
            r"|hf_[A-Za-z0-9]{30,}|sk-(?:[a-z]+[0-9]*-)+[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9]{32,})"
        ),
        REDACTED,
    ),
];

/// For values: of labels, of resource attributes, and arguments of the command line. The needles are in lower case.
static IN_VALUES: [SecretPattern; 6] = [
    // HTTP authentication (RFC 6750, RFC 7617, RFC 7616).
    pattern(&["bearer "], r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/-]{12,}=*", "${1}[REDACTED]"),
    pattern(&["basic "], r"(?i)\b(basic\s+)(?:[A-Za-z0-9+/]{6,}={1,2}|[A-Za-z0-9+/]{20,})", "${1}[REDACTED]"),
    pattern(
        &["digest "],
        concat!(r"(?i)\b(digest\s+)", parameter!(), r"(?:\s*,\s*", parameter!(), r")+"),
        "${1}[REDACTED]",
    ),
    // Passwords that follow `-p` directly: of any command if they have capitals, symbols, or letters and digits, which names and
    // numbers of other options do not; and every one of the commands that are known for it.
    pattern(
        &["-p"],
        r#"((?:^|[\s"'])-p)(?:[^\s"'=:/]*[A-Z!@#$%^&*][^\s"']*|[a-z]+[0-9][^\s"'=:/]*|[0-9]+[a-z][^\s"'=:/]*)"#,
        "${1}[REDACTED]",
    ),
    pattern(
        &["mysql", "mariadb", "sshpass"],
        r#"(\b(?:(?:mysql|mariadb)[a-z-]*\s(?:[^|;&]*?\s)?-p|sshpass\s(?:[^|;&]*?\s)?-p\s?))[^\s"'-][^\s"']*"#,
        "${1}[REDACTED]",
    ),
    // Elements of XML.
    pattern(
        &["</"],
        concat!(
            r"(?is)(<(?:[a-z0-9_-]+:)?",
            key!(),
            r"(?:\s[^<>]*)?>)(?:<!\[CDATA\[.*?\]\]>|[^<]+)(</(?:[a-z0-9_-]+:)?",
            key!(),
            r")"
        ),
        "${1}[REDACTED]${2}",
    ),
];

/// Keys with a value inside a text, where the key contains a word of `sensitive_key`: `key=value`, `key: value`, `"key": "value"`,
/// `["key", "value"]`, `key%3Dvalue`, also with escaped quotes. The value ends at white space, `&` or its quote; it may
/// have a scheme of HTTP authentication in front. `Token::new` is a path of code.
const PAIR: &str = concat!(
    r"(?is)(",
    key!(),
    r#")((?:\\*["']|%2[27])?\s*(?:[=:]|%3[da])\s*|\\*["']\s*,\s*)"#,
    r"(",
    quoted!(),
    r#"|\\+"[^"]*"?|(?:bearer|basic|digest|token|apikey|negotiate|ntlm|hoba|aws4-hmac-sha256|scram-sha-[0-9]+)\s+(?:"#,
    parameter!(),
    r"(?:\s*,\s*",
    parameter!(),
    r#")*|[^\s&"']+)|[^\s&"':][^\s&"']*)"#
);
/// Options of a command in a text: `--token value`. The separator is white space.
const OPTION: &str = concat!(r#"(?is)(?:^|[\s"'])(--?"#, key!(), r")(\s+)(", quoted!(), r"|[^\s-]\S*)");
/// String literals of SQL, in a text that starts like a statement.
const SQL_LITERAL: &str = r"'(?:[^']|'')*'?";
const SQL_VERBS: [&str; 17] = [
    "select ", "insert ", "update ", "delete ", "merge ", "replace ", "with ", "call ", "exec ", "execute ",
    "explain ", "create ", "alter ", "grant ", "set ", "copy ", "values ",
];

/// `text` without secrets that its form shows, in a name: a function, a file, a label's key.
pub(super) fn of_name(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for pattern in &ANYWHERE {
        if pattern.needles.iter().any(|needle| text.contains(needle)) {
            replace(&mut text, pattern.regex(), pattern.replacement);
        }
    }
    if text.contains('\'') && is_statement(&text) {
        static LITERAL: OnceLock<Option<Regex>> = OnceLock::new();
        replace(&mut text, compiled(&LITERAL, SQL_LITERAL), "'[REDACTED]'");
    }
    text
}

/// `text` without secrets that its form shows, in a value or a message: also `password=…` and credentials of HTTP.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut found = of_name(text);
    let lower = found.to_ascii_lowercase();
    let may_have_key = may_have_secret_key(&lower);
    for pattern in &IN_VALUES {
        if pattern.needles.iter().any(|needle| lower.contains(needle)) {
            replace(&mut found, pattern.regex(), pattern.replacement);
        }
    }
    static PAIRS: OnceLock<Option<Regex>> = OnceLock::new();
    static OPTIONS: OnceLock<Option<Regex>> = OnceLock::new();
    if may_have_key && found.contains(['=', ':', '%', ',']) {
        replace_values(&mut found, compiled(&PAIRS, PAIR));
    }
    if may_have_key && found.contains('-') && found.contains(char::is_whitespace) {
        replace_values(&mut found, compiled(&OPTIONS, OPTION));
    }
    found
}

/// Replaces the values of keys that name secrets. The groups of the pattern are key, separator and value.
fn replace_values(text: &mut Cow<'_, str>, pairs: Option<&Regex>) {
    let Some(pairs) = pairs else { return };
    let mut replaced = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(pair) = pairs.captures_at(text, at) {
        let (Some(key), Some(separator), Some(value)) = (pair.get(1), pair.get(2), pair.get(3)) else { break };
        at = value.end();
        let is_redacted = value.as_str().starts_with(REDACTED);
        if is_redacted || !is_secret(key.as_str(), value.as_str().trim_matches(['"', '\'', '\\'])) {
            continue;
        }
        at = match value.as_str().as_bytes().first() {
            Some(b'{' | b'[') => value.start() + nested_length(&text[value.start()..]),
            _ if separator.as_str().contains('%') => {
                value.as_str().find("%26").map_or(at, |length| value.start() + length)
            }
            _ => at,
        };
        replaced += &text[copied..value.start()];
        replaced += REDACTED;
        copied = at;
    }
    if copied > 0 {
        replaced += &text[copied..];
        *text = Cow::Owned(replaced);
    }
}

/// Length of the object or list of JSON that begins the text. The whole text if it is not complete.
fn nested_length(text: &str) -> usize {
    let (mut depth, mut in_text, mut is_escaped) = (0usize, false, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => depth += 1,
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    text.len()
}

fn may_have_secret_key(lower: &str) -> bool {
    // Each secret key contains one of these.
    ["pass", "pwd", "secret", "cred", "token", "key", "auth", "cookie"].iter().any(|part| lower.contains(part))
}

fn is_statement(text: &str) -> bool {
    let start = without_comments(text).as_bytes();
    SQL_VERBS.iter().any(|verb| start.len() > verb.len() && start[..verb.len()].eq_ignore_ascii_case(verb.as_bytes()))
}

/// A statement of SQL without comments and parentheses at its start.
fn without_comments(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start().trim_start_matches('(').trim_start();
        let (comment, end) = match rest {
            _ if rest.starts_with("--") => (rest, "\n"),
            _ if rest.starts_with("/*") => (&rest[2..], "*/"),
            _ => return rest,
        };
        match comment.split_once(end) {
            Some((_, after)) => rest = after,
            None => return "",
        }
    }
}

impl SecretPattern {
    fn regex(&self) -> Option<&Regex> {
        compiled(&self.compiled, self.pattern)
    }
}

/// Compiled at the first text with a needle, since most programs have none. The tests compile every pattern.
fn compiled<'r>(cell: &'r OnceLock<Option<Regex>>, pattern: &str) -> Option<&'r Regex> {
    cell.get_or_init(|| Regex::new(pattern).ok()).as_ref()
}

fn replace(text: &mut Cow<'_, str>, regex: Option<&Regex>, replacement: &str) {
    if let Some(Cow::Owned(replaced)) = regex.map(|regex| regex.replace_all(text, replacement)) {
        if replaced != **text {
            *text = Cow::Owned(replaced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92K27uhbUJU1p1r_wW1g";

    #[test]
    fn every_pattern_compiles() {
        assert!(ANYWHERE.iter().chain(&IN_VALUES).all(|pattern| pattern.regex().is_some()));
        assert!([PAIR, OPTION, SQL_LITERAL].iter().all(|pattern| Regex::new(pattern).is_ok()));
    }

    #[test]
    fn secrets_are_found_by_their_form() {
        let github = format!("ghp_{}", "a1".repeat(18));
        for (text, expected) in [
            ("postgres://shop:hunter2@db:5432/x", "postgres://[REDACTED]@db:5432/x"),
            ("https://a@b:p@host/x?y@z", "https://[REDACTED]@host/x?y@z"),
            (JWT, "[REDACTED]"),
            ("id AKIAIOSFODNN7EXAMPLE.", "id [REDACTED]."),
            ("-----BEGIN RSA PRIVATE KEY-----\nMII\nEvQ", "[REDACTED]"),
            (&github, "[REDACTED]"),
            (
                "SELECT * FROM users WHERE mail = 'a@b.c' AND x = 'it''s'",
                "SELECT * FROM users WHERE mail = '[REDACTED]' AND x = '[REDACTED]'",
            ),
        ] {
            assert_eq!(of_name(text), expected);
            assert_eq!(without_secrets(text), expected);
        }
    }

    #[test]
    fn values_are_searched_for_pairs_and_http_credentials_too() {
        for (text, expected) in [
            ("password=hunter2", "password=[REDACTED]"),
            ("user=a&password=hunter2&x=1", "user=a&password=[REDACTED]&x=1"),
            (
                "{\"user\": \"a\", \"api_key\": \"k 1\\\" 2\", \"n\": 1}",
                "{\"user\": \"a\", \"api_key\": [REDACTED], \"n\": 1}",
            ),
            ("Authorization: Bearer abcdef123456789", "Authorization: [REDACTED]"),
            ("Authorization: Basic dXNlcjpwYXNz", "Authorization: [REDACTED]"),
            ("sent Bearer abcdef123456789.x", "sent Bearer [REDACTED]"),
            ("--token=abc --level=3", "--token=[REDACTED] --level=3"),
            ("-pSECRET", "-p[REDACTED]"),
            ("backup -u root -phunter2 shop", "backup -u root -p[REDACTED] shop"),
            ("mysqldump --port=3306 -uroot -psecret shop", "mysqldump --port=3306 -uroot -p[REDACTED] shop"),
            ("sshpass -p secret ssh host", "sshpass -p [REDACTED] ssh host"),
            ("dsn=password=hunter2", "dsn=password=[REDACTED]"),
            ("Server=db;Password='a b';Pool=3", "Server=db;Password=[REDACTED];Pool=3"),
        ] {
            assert_eq!(without_secrets(text), expected, "{text}");
        }
    }

    #[test]
    fn ordinary_texts_stay() {
        for text in [
            "refresh_token",
            "validate_password",
            "shop::auth::set_password::{closure#0}",
            "com.example.TokenService$Secret.rotate(Password)",
            "/srv/app/secrets/token.py",
            "file:///srv/app/auth.js",
            "https://host/script.js?v=1",
            "operator delete(void*)",
            "<impl core::ops::FnOnce<&'a str> for auth::Token>::call",
        ] {
            assert_eq!(of_name(text), text);
            assert!(matches!(of_name(text), Cow::Borrowed(_)));
        }
        for text in [
            "/cart",
            "basic authentication",
            "GET /token?id=7",
            "12:30:45",
            "max_tokens=512",
            "the token is missing or wrong",
            "-token",
            "run --verbose now",
            "Vec<Token>::new() </",
            "--token-count 512",
            "serve -p8080 -print -p 80 -p127.0.0.1:80:80 -path/To/x",
            "mysql -u root -p shop",
            "mysql_v1_0",
            "SELECT 1",
            "auth::Token::call",
        ] {
            assert_eq!(without_secrets(text), text);
        }
    }

    #[test]
    fn redacted_texts_are_not_redacted_again() {
        for text in [
            "password=hunter2",
            "a://u:p@h",
            "Authorization: Bearer abcdef123456789",
            JWT,
            "SELECT 'x'",
            "\"token\":\"x\"",
            "run --token x now",
            "{\"token\":{\"a\":[\"x\"]}}",
            "<token>x</token>",
            "password%3Dx%26y",
            "mysql -pSECRET",
        ] {
            let once = without_secrets(text).into_owned();
            assert_eq!(without_secrets(&once), once);
        }
    }
}
