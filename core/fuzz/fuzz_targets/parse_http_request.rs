//! Requests to the pull listener: no panic, limited size, and the same result for each size of the reads.
#![no_main]

use http_message::{parse, ParsedRequest, PartialRequest, MAX_BODY_BYTES, READ_BYTES};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "a module of the export crate, which does not export it")]
#[path = "../../agent/export/src/http_message.rs"]
mod http_message;

// The first two bytes are the size of the reads.
fuzz_target!(|bytes: &[u8]| {
    let Some((size, bytes)) = bytes.split_first_chunk::<2>() else { return };
    let size = 1 + usize::from(u16::from_le_bytes(*size)) % READ_BYTES;
    let whole = parse(bytes);
    if let ParsedRequest::Complete(request) = &whole {
        assert!(request.body.len() <= MAX_BODY_BYTES);
        let texts: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(request.method.len() + request.target.len() + texts + request.body.len() <= bytes.len());
    }
    let mut request = PartialRequest::default();
    for read in bytes.chunks(size) {
        match request.add(read) {
            ParsedRequest::Partial => {}
            ParsedRequest::Abandoned => return,
            parsed => return assert_eq!(parsed, whole),
        }
    }
    assert!(bytes.is_empty() || whole == ParsedRequest::Partial);
});
