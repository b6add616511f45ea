//! Keys of the configuration in snake_case and in camelCase, alone and in messages.

use super::binding_options::BindingOption;
use crate::keys::table::KEYS;

/// A key in snake_case: `sampleRate` becomes `sample_rate`.
pub fn snake_case(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// A message with the keys in camelCase: `sample_rate` becomes `sampleRate`. A message about a file, whose keys are in
/// snake_case, is unchanged.
pub fn in_camel_case(message: &str, options: &[BindingOption]) -> String {
    if message.contains("(file ") {
        return message.to_owned();
    }
    let is_key =
        |word: &str| KEYS.iter().any(|key| key.name == word) || options.iter().any(|option| option.name == word);
    let is_word_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    let mut converted = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(letter) = rest.chars().next() {
        let end = rest.find(|letter| !is_word_letter(letter)).unwrap_or(rest.len());
        if end == 0 {
            converted.push(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        }
        let (word, tail) = rest.split_at(end);
        // A part of a longer word, such as a path, a URL or a counter's name, is not a key.
        let is_separate = !converted.ends_with(|before: char| before.is_alphanumeric() || "/.-".contains(before));
        if is_separate && (is_key(word) || converted.ends_with("unknown key `")) {
            converted.push_str(&camel_case(word));
        } else {
            converted.push_str(word);
        }
        rest = tail;
    }
    converted
}

/// A key in camelCase.
pub fn camel_case(key: &str) -> String {
    let mut words = key.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_keys_in_camel_case() {
        let converted = |message| in_camel_case(message, &[]);
        assert_eq!(
            converted("sample_rate (code) must be a whole number between 1 and 10000 Hz, got -1"),
            "sampleRate (code) must be a whole number between 1 and 10000 Hz, got -1"
        );
        assert_eq!(
            converted("unknown key `sampel_rate` (code) is ignored; did you mean `sample_rate`?"),
            "unknown key `sampelRate` (code) is ignored; did you mean `sampleRate`?"
        );
        for unchanged in [
            "unknown key `typo_rate` (file a.yaml) is ignored; did you mean `sample_rate`?",
            "endpoint (environment SPANPROF_ENDPOINT) must be text: /srv/file_keep/x.file_keep",
            "the clock thread_timer is unknown_word",
        ] {
            assert_eq!(converted(unchanged), unchanged);
        }
    }
}
