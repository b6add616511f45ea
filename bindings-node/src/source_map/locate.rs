//! Finds a script's source map: in a `data:` URL, or in a file beside the script. No network access.

use std::io::Read;

use base64::engine::{general_purpose, DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{alphabet, Engine};
use percent_encoding::percent_decode_str;

use super::{path, MapError, SourceMapLimits};

/// A map's text, and the base of its relative sources.
#[derive(Debug, PartialEq, Eq)]
pub struct MapText {
    pub text: Vec<u8>,
    pub base: String,
}

/// The map at `url`, which `script` (a path, a URL or any name) refers to.
pub fn read(script: &str, url: &str, limits: &SourceMapLimits) -> Result<MapText, MapError> {
    if let Some(inline) = url.strip_prefix("data:") {
        return Ok(MapText { text: inline_text(inline, limits)?, base: script.to_owned() });
    }
    let path = path::resolve(script, url);
    if !path.starts_with('/') {
        return Err(MapError::NotLocal(shortened(&path)));
    }
    // The literal name is tried first: some tools write names with unescaped percent signs. The script's directory is a path, in
    // which a percent sign is one.
    let without_query = url.split_once('?').map_or(url, |(name, _)| name);
    let decoded = |name| percent_decode_str(name).decode_utf8().ok().map(|name| path::resolve(script, &name));
    let others = [decoded(url), decoded(without_query), Some(path::resolve(script, without_query))];
    let mut map = file(&path, limits);
    for other in others.into_iter().flatten().filter(|other| *other != path) {
        if !matches!(map, Err(MapError::Unreadable(_))) {
            break;
        }
        map = file(&other, limits).or(map);
    }
    map
}

fn shortened(path: &str) -> String {
    path.chars().take(200).collect()
}

fn file(path: &str, limits: &SourceMapLimits) -> Result<MapText, MapError> {
    let failed = |error: std::io::Error| MapError::Unreadable(format!("{}: {error}", shortened(path)));
    // Only regular files, since opening others may block.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(MapError::Unreadable(format!("{} is not a regular file", shortened(path))));
    }
    if metadata.len() > limits.text_bytes as u64 {
        return Err(MapError::TooLarge("bytes"));
    }
    let mut text = Vec::with_capacity(metadata.len() as usize);
    let opened = std::fs::File::open(path).map_err(failed)?;
    opened.take(limits.text_bytes as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    Ok(MapText { text, base: path.to_owned() })
}

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn inline_text(url: &str, limits: &SourceMapLimits) -> Result<Vec<u8>, MapError> {
    if url.len() / 4 * 3 > limits.text_bytes {
        return Err(MapError::TooLarge("bytes"));
    }
    let broken = |what: &str| MapError::Malformed(format!("its data URL {what}"));
    let (media_type, data) = url.split_once(',').ok_or_else(|| broken("has no comma"))?;
    if media_type.split(';').any(|part| part.trim().eq_ignore_ascii_case("base64")) {
        let data: Vec<u8> = percent_decode_str(data).filter(|byte| !byte.is_ascii_whitespace()).collect();
        let safe = data.iter().any(|byte| matches!(byte, b'-' | b'_'));
        return match safe {
            true => general_purpose::URL_SAFE.decode(&data),
            false => LENIENT.decode(&data),
        }
        .map_err(|_| broken("is not base64"));
    }
    Ok(percent_decode_str(data).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inline(url: &str) -> Result<String, MapError> {
        read("/srv/a.js", url, &SourceMapLimits::default()).map(|found| String::from_utf8(found.text).unwrap())
    }

    #[test]
    fn an_inline_map_is_read_in_every_valid_form() {
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
        // A percent sign in a directory is not an escape.
        let folder = std::env::temp_dir().join(format!("spanprof 100%25 maps%20 {}", std::process::id()));
        std::fs::create_dir_all(folder.join("maps")).unwrap();
        let path = folder.join("maps/a b.js.map");
        std::fs::write(&path, "{}").unwrap();
        let script = folder.join("a b.js");
        for url in ["maps/a b.js.map", "maps/a%20b.js.map", "./maps/../maps/a%20b.js.map?v=1", path.to_str().unwrap()] {
            let found = read(script.to_str().unwrap(), url, &SourceMapLimits::default());
            assert_eq!(found.map(|found| found.text), Ok(b"{}".to_vec()), "{url}");
        }
        let small = SourceMapLimits { text_bytes: 1, ..SourceMapLimits::default() };
        assert_eq!(read(script.to_str().unwrap(), "maps/a b.js.map", &small), Err(MapError::TooLarge("bytes")));
        assert!(matches!(
            read(script.to_str().unwrap(), "maps", &SourceMapLimits::default()),
            Err(MapError::Unreadable(_))
        ));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn no_url_is_fetched_and_no_base_is_guessed() {
        assert!(matches!(inline("https://example.com/a.js.map"), Err(MapError::NotLocal(_))));
        assert!(matches!(
            read("evalmachine.<anonymous>", "a.map", &SourceMapLimits::default()),
            Err(MapError::NotLocal(_))
        ));
    }
}
