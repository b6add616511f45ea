//! Keys whose values are secrets: names of labels, resource attributes and command-line options.

/// Parts of a key in lower case, without punctuation.
const WORDS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "cookie",
];
/// Words that contain one of these and name no secret.
const EXCEPTIONS: [&str; 3] = ["tokeniz", "secretary", "passwordless"];

/// Whether the value of `key` is a secret. `api_key`, `Api-Key` and `apiKey` are equal. A number is not a secret if the key
/// continues with another word: `token_count=512` stays, `token=512` does not.
pub(super) fn is_secret(key: &str, value: &str) -> bool {
    let mut plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    plain.make_ascii_lowercase();
    for exception in EXCEPTIONS {
        plain = plain.replace(exception, "");
    }
    let ends = WORDS.iter().filter_map(|word| plain.rfind(word).map(|at| at + word.len()));
    let last = ends.max().or_else(|| plain.ends_with("pwd").then_some(plain.len()));
    last.is_some_and(|end| {
        let continues = plain[end..].contains(|letter: char| letter.is_ascii_alphabetic());
        !(continues && value.parse::<f64>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn keys_of_secrets_are_found_in_every_spelling() {
        for key in
            ["password", "DB_PASSWORD", "dbPassword", "client-secret", "api_key", "X-Api-Key", "token", "authToken"]
        {
            assert!(is_secret(key, "hunter2") && is_secret(key, "1234"), "{key}");
        }
        assert!(is_secret("aws.credentials", "x") && is_secret("cookie", "a=b") && is_secret("MYSQL_PWD", "x"));
    }

    #[test]
    fn counts_and_ordinary_words_are_no_secrets() {
        assert!(!is_secret("token_count", "512") && !is_secret("tokens", "512") && !is_secret("password_length", "12"));
        assert!(is_secret("tokens", "a,b") && is_secret("token_id", "x7f"));
        for key in ["tokenizer", "route", "user", "author", "key", "secretary", "host.name", "service.name"] {
            assert!(!is_secret(key, "value"), "{key}");
        }
    }
}
