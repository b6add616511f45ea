//! Recognizes unsupported formats, so that the error names the format instead of a protobuf field. Used only when decoding
//! fails or finds nothing.

use super::{folded, DecodeError};
use crate::wire::scan;

/// Magic bytes and their formats.
const MAGIC: &[(&[u8], &str)] = &[
    (b"\x7fELF", "an ELF program or library"),
    (b"FLR\0", "a recording of JDK Flight Recorder"),
    (b"PERFILE2", "a recording of perf; `perf script | stackcollapse-perf.pl` makes folded stacks of it"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x28\xb5\x2f\xfd", "zstd data; decompress it first"),
    (b"BZh", "bzip2 data; decompress it first"),
    (b"\xfd7zXZ\0", "xz data; decompress it first"),
    (b"<", "an HTML or XML page; open it in a browser"),
];

/// The largest field of the outermost messages of OTLP and pprof, and some for their later versions.
const LARGEST_FIELD: u64 = 31;
/// Length of the prefix that is inspected.
const PREFIX_BYTES: usize = 4096;

/// The error for a recognized unsupported format, or for bytes that cannot begin a protobuf message.
pub(super) fn unsupported_format(body: &[u8]) -> Option<DecodeError> {
    let got = name_of(body)?;
    let expected = "OTLP profiles (protobuf or JSON), pprof, folded stacks or speedscope, plain or gzip".to_owned();
    Some(DecodeError { what: "profile", at: String::new(), expected, got })
}

fn name_of(body: &[u8]) -> Option<String> {
    if let Some((_, name)) = MAGIC.iter().find(|(magic, _)| body.starts_with(magic)) {
        return Some((*name).to_owned());
    }
    let head = &body[..body.len().min(PREFIX_BYTES)];
    // Requests begin with a line feed (field 1), JSON with a brace; their decoders report specific errors.
    match head.first() {
        None => return Some("an empty file".to_owned()),
        Some(b'{') => return None,
        // Lengths before messages, of the Collector's file exporter.
        Some(0) => return None,
        Some(_) => (),
    }
    if let Some(text) = text_of(body).filter(|_| head[0] != b'\n') {
        // The folded decoder reports the malformed line.
        return (!folded::is_folded(text))
            .then(|| format!("text that begins with {:?}", text.chars().take(20).collect::<String>()));
    }
    scan::has_foreign_field(body, LARGEST_FIELD).then(|| {
        let bytes: Vec<_> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("an unknown format that begins with the bytes {}", bytes.join(" "))
    })
}

/// The prefix as text, without a truncated last line unless it is the only one; `None` for binary data.
pub(super) fn text_of(body: &[u8]) -> Option<&str> {
    let head = &body[..body.len().min(PREFIX_BYTES)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let is_text = |character: char| !character.is_control() || matches!(character, '\n' | '\r' | '\t');
    if !text.chars().all(is_text) {
        return None;
    }
    match text.rsplit_once('\n') {
        Some((whole, _)) if head.len() < body.len() => Some(whole),
        _ => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use crate::decode::{any, DecodeLimits};

    fn error_of(bytes: &[u8]) -> String {
        any(bytes, &DecodeLimits::default()).unwrap_err().to_string()
    }

    #[test]
    fn the_error_names_a_recognized_unsupported_format() {
        for (bytes, name) in [
            (&b"hello, this is a note\nof two lines"[..], "got text that begins with \"hello, this is a not\""),
            (b"<!doctype html><html>", "got an HTML or XML page"),
            (b"\x7fELF\x02\x01\x01\0\0\0\0", "got an ELF program or library"),
            (b"FLR\0\0\x02\0\x01", "got a recording of JDK Flight Recorder"),
            (b"\x07\x00\xff\xfe\x13", "begins with the bytes 07 00 ff fe 13"),
            (b"\x0a\x01\x07\xf6\xfe\x13", "begins with the bytes 0a 01 07 f6 fe 13"),
            (b"", "got an empty file"),
        ] {
            let error = error_of(bytes);
            assert!(
                error.contains("expected OTLP profiles (protobuf or JSON), pprof, folded stacks or speedscope"),
                "{error}"
            );
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn the_error_of_a_malformed_profile_keeps_its_path() {
        assert!(error_of(&[0x0a, 0x05, 0x12]).contains("expected 5 more bytes"));
    }
}
