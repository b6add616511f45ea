//! Where a script's map is: in a `data:` URL, or in a file beside the script. Nothing is ever fetched.

use std::io::Read;

use base64::engine::{general_purpose, DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{alphabet, Engine};
use percent_encoding::percent_decode_str;

use super::{path, Limits, MapError};

/// A map's text, and what its sources are relative to.
#[derive(Debug, PartialEq, Eq)]
pub struct MapText {
    pub text: Vec<u8>,
    pub base: String,
}

/// The map that `script` (a path, a URL or any name) announces by `url`.
pub fn read(script: &str, url: &str, limits: &Limits) -> Result<MapText, MapError> {
    if let Some(inline) = url.strip_prefix("data:") {
        return Ok(MapText { text: inline_text(inline, limits)?, base: script.to_owned() });
    }
    let place = path::beside(script, url);
    // A path is looked up as it stands first: tools write names with percent signs unescaped.
    let decoded = percent_decode_str(&place).decode_utf8().ok().map(|path| path.into_owned());
    if !place.starts_with('/') {
        return Err(MapError::NotHere(shortened(&place)));
    }
    let without_query = decoded.as_deref().and_then(|path| path.split_once('?')).map(|(path, _)| path.to_owned());
    let mut outcome = file(&place, limits);
    for other in [decoded, without_query].into_iter().flatten().filter(|other| *other != place) {
        if !matches!(outcome, Err(MapError::Unreadable(_))) {
            break;
        }
        outcome = file(&other, limits).or(outcome);
    }
    outcome
}

fn shortened(place: &str) -> String {
    place.chars().take(200).collect()
}

fn file(place: &str, limits: &Limits) -> Result<MapText, MapError> {
    let failed = |error: std::io::Error| MapError::Unreadable(format!("{}: {error}", shortened(place)));
    // Nothing that could block is opened.
    let facts = std::fs::metadata(place).map_err(failed)?;
    if !facts.is_file() {
        return Err(MapError::Unreadable(format!("{} is no file", shortened(place))));
    }
    if facts.len() > limits.text_bytes as u64 {
        return Err(MapError::TooLarge("bytes"));
    }
    let mut text = Vec::with_capacity(facts.len() as usize);
    let opened = std::fs::File::open(place).map_err(failed)?;
    opened.take(limits.text_bytes as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    Ok(MapText { text, base: place.to_owned() })
}

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn inline_text(url: &str, limits: &Limits) -> Result<Vec<u8>, MapError> {
    if url.len() / 4 * 3 > limits.text_bytes {
        return Err(MapError::TooLarge("bytes"));
    }
    let broken = |what: &str| MapError::Malformed(format!("its data URL {what}"));
    let (kind, data) = url.split_once(',').ok_or_else(|| broken("has no comma"))?;
    if kind.split(';').any(|part| part.trim().eq_ignore_ascii_case("base64")) {
        let data: Vec<u8> = percent_decode_str(data).filter(|byte| !byte.is_ascii_whitespace()).collect();
        let safe = data.iter().any(|byte| matches!(byte, b'-' | b'_'));
        return match safe {
            true => general_purpose::URL_SAFE.decode(&data),
            false => LENIENT.decode(&data),
        }
        .map_err(|_| broken("is not base 64"));
    }
    Ok(percent_decode_str(data).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inline(url: &str) -> Result<String, MapError> {
        read("/srv/a.js", url, &Limits::default()).map(|found| String::from_utf8(found.text).unwrap())
    }

    #[test]
    fn an_inline_map_is_read_in_every_way_it_is_written() {
        for url in [
            "data:application/json;base64,eyJhIjoxfQ==",
            "data:application/json;charset=utf-8;base64,eyJhIjoxfQ",
            "data:application/json;base64,eyJh%49joxfQ%3D%3D",
            "data:application/json,%7B%22a%22:1}",
            "data:,{\"a\":1}",
        ] {
            assert_eq!(inline(url).as_deref(), Ok("{\"a\":1}"), "{url}");
        }
        assert!(matches!(inline("data:;base64,***"), Err(MapError::Malformed(_))));
        assert!(matches!(inline("data:application/json"), Err(MapError::Malformed(_))));
    }

    #[test]
    fn a_map_in_a_file_is_found_beside_the_script() {
        let folder = std::env::temp_dir().join(format!("spanprof maps {}", std::process::id()));
        std::fs::create_dir_all(folder.join("maps")).unwrap();
        let place = folder.join("maps/a b.js.map");
        std::fs::write(&place, "{}").unwrap();
        let script = folder.join("a b.js");
        for url in ["maps/a b.js.map", "maps/a%20b.js.map", "./maps/../maps/a%20b.js.map?v=1", place.to_str().unwrap()]
        {
            let found = read(script.to_str().unwrap(), url, &Limits::default());
            assert_eq!(found.map(|found| found.text), Ok(b"{}".to_vec()), "{url}");
        }
        let small = Limits { text_bytes: 1, ..Limits::default() };
        assert_eq!(read(script.to_str().unwrap(), "maps/a b.js.map", &small), Err(MapError::TooLarge("bytes")));
        assert!(matches!(read(script.to_str().unwrap(), "maps", &Limits::default()), Err(MapError::Unreadable(_))));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn nothing_is_fetched_and_no_place_is_guessed() {
        assert!(matches!(inline("https://example.com/a.js.map"), Err(MapError::NotHere(_))));
        assert!(matches!(read("evalmachine.<anonymous>", "a.map", &Limits::default()), Err(MapError::NotHere(_))));
    }
}
