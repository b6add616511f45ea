//! Format of a request in the disk buffer: a header with length and checksum, then the body. Performs no I/O.

use bytes::Bytes;
use std::sync::Arc;

/// First bytes of a file; the digit is the version of the format.
const MAGIC: [u8; 8] = *b"spanreq1";
/// Bytes before the body: magic, samples, time, length of the body (8 bytes each, little-endian), checksum (4 bytes).
pub(crate) const HEADER_BYTES: usize = 36;

/// A request on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRequest {
    /// Name in the process directory; sorts by the start of the window.
    pub name: Arc<str>,
    /// Bytes of the body.
    pub bytes: u64,
}

/// Metadata of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub samples: u64,
    /// Start of the window, in milliseconds since 1970.
    pub time_unix_ms: u64,
}

/// The bytes before the body.
pub(crate) fn encode_header(header: RequestHeader, body: &[u8]) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    for (field, value) in [header.samples, header.time_unix_ms, body.len() as u64].into_iter().enumerate() {
        bytes[8 + field * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }
    let checksum = checksum(&bytes[..HEADER_BYTES - 4], body);
    bytes[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The metadata and the length of the body; `None` for other bytes. The checksum is verified by [`decode`].
pub(crate) fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Option<(RequestHeader, u64)> {
    let field = |nth: usize| {
        let mut value = [0; 8];
        value.copy_from_slice(&bytes[8 + nth * 8..][..8]);
        u64::from_le_bytes(value)
    };
    (bytes[..8] == MAGIC).then(|| (RequestHeader { samples: field(0), time_unix_ms: field(1) }, field(2)))
}

/// Metadata and body of a file; `None` when its length or checksum is wrong.
pub(crate) fn decode(content: Bytes) -> Option<(RequestHeader, Bytes)> {
    let start: &[u8; HEADER_BYTES] = content.get(..HEADER_BYTES)?.try_into().ok()?;
    let (header, length) = decode_header(start)?;
    let body = &content[HEADER_BYTES..];
    let stored = u32::from_le_bytes(start[HEADER_BYTES - 4..].try_into().ok()?);
    let is_whole = body.len() as u64 == length && checksum(&start[..HEADER_BYTES - 4], body) == stored;
    is_whole.then(|| (header, content.slice(HEADER_BYTES..)))
}

/// CRC-32 of header and body.
fn checksum(header: &[u8], body: &[u8]) -> u32 {
    let mut checksum = flate2::Crc::new();
    checksum.update(header);
    checksum.update(body);
    checksum.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(body: &[u8]) -> Vec<u8> {
        let header = RequestHeader { samples: 7, time_unix_ms: 1_700_000_000_000 };
        [&encode_header(header, body), body].concat()
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for body in [&b""[..], b"profile"] {
            let (header, read) = decode(file(body).into()).unwrap();
            assert_eq!((header.samples, header.time_unix_ms), (7, 1_700_000_000_000));
            assert_eq!(read, body);
        }
    }

    #[test]
    fn every_shortened_or_changed_file_is_torn() {
        let whole = file(b"the body of a request");
        for length in 0..whole.len() {
            assert!(decode(Bytes::copy_from_slice(&whole[..length])).is_none(), "{length} bytes");
            // A file whose last blocks were never written reads as zeros.
            let mut zeroed = whole.clone();
            zeroed[length..].fill(0);
            assert!(decode(zeroed.into()).is_none(), "zeros from {length}");
            let mut changed = whole.clone();
            changed[length] ^= 1;
            assert!(decode(changed.into()).is_none(), "bit at {length}");
        }
        assert!(decode([whole.as_slice(), b"x"].concat().into()).is_none());
    }
}
