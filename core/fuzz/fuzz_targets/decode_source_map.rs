//! The reader of source maps, which come from whatever the program loads: plain, indexed, inline.
#![no_main]

use libfuzzer_sys::fuzz_target;
use source_map::{decode, path_of, read, SourceMapLimits};

#[allow(dead_code, reason = "a module of the Node.js binding, which builds as an addon only")]
#[path = "../../../bindings-node/src/source_map/mod.rs"]
mod source_map;

fuzz_target!(|bytes: &[u8]| {
    let limits = SourceMapLimits { text_bytes: 1 << 20, segments: 1 << 16, ..SourceMapLimits::default() };
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = path_of(text);
        if let Ok(found) = read("/none/a.js", &format!("data:{text}"), &limits) {
            assert!(found.text.len() <= bytes.len());
        }
    }
    let Ok(map) = decode(bytes, "/none/a.js.map", &limits) else { return };
    // Each segment took a letter at least.
    assert!(map.bytes() <= 4096 + bytes.len() * 64);
    for place in [(0, 0), (0, 7), (1, 3), (3, u32::MAX), (u32::MAX, 0)] {
        if let Some(origin) = map.origin(place.0, place.1) {
            assert!(origin.line < 1 << 30 && origin.column < 1 << 30);
        }
    }
});
