//! Statistics of the code map. A thread that changed the map publishes them while it holds the lock; `stats()` reads them
//! without a lock, so that a JavaScript thread never waits for the drain. Each figure is exact, but not all are of one moment.

use std::sync::atomic::{fence, AtomicU64, Ordering};

use super::code_map::CodeMap;

const NAMES: [&str; 8] = [
    "node.codes",
    "node.code_bytes",
    "node.codes_forgotten",
    "node.inlined_unnamed",
    "node.scripts",
    "node.scripts_forgotten",
    "node.source_maps",
    SOURCE_MAPS_REFUSED,
];
const SOURCE_MAPS_REFUSED: &str = "node.source_maps_refused";

static FIGURES: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
static LAST_REFUSAL: SeqlockText = SeqlockText::new();

/// Publishes the statistics of the locked map.
pub fn publish(map: &CodeMap) {
    let scripts = &map.scripts;
    let figures = [
        map.len() as u64,
        map.bytes() as u64,
        map.codes_forgotten,
        scripts.inlined_unnamed,
        scripts.len() as u64,
        scripts.scripts_forgotten,
        scripts.maps_read,
        scripts.maps_refused,
    ];
    for ((name, slot), figure) in NAMES.iter().zip(&FIGURES).zip(figures) {
        if slot.load(Ordering::Relaxed) == figure {
            continue;
        }
        slot.store(figure, Ordering::Relaxed);
        if *name == SOURCE_MAPS_REFUSED {
            LAST_REFUSAL.write(&scripts.last_refusal);
        }
    }
}

/// Appends the statistics published last, without a lock.
pub fn read(out: &mut Vec<(&'static str, String)>) {
    out.extend(NAMES.iter().zip(&FIGURES).map(|(name, figure)| (*name, figure.load(Ordering::Relaxed).to_string())));
    if let Some(text) = LAST_REFUSAL.read().filter(|text| !text.is_empty()) {
        out.push(("node.source_map_refused_last", text));
    }
}

const WORD: usize = 8;
const WORDS: usize = 64;
/// Attempts to read while the text changes.
const READ_ATTEMPTS: usize = 16;

/// A text under a sequence lock, for one writer and many readers; longer texts are truncated.
struct SeqlockText {
    /// Odd during a write.
    version: AtomicU64,
    len: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl SeqlockText {
    const fn new() -> Self {
        Self { version: AtomicU64::new(0), len: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// One writer at a time.
    fn write(&self, text: &str) {
        let mut len = text.len().min(WORDS * WORD);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let before = self.version.load(Ordering::Relaxed);
        self.version.store(before + 1, Ordering::Relaxed);
        // A reader of any later store also sees the odd version.
        fence(Ordering::Release);
        self.len.store(len as u64, Ordering::Relaxed);
        for (slot, bytes) in self.words.iter().zip(text.as_bytes()[..len].chunks(WORD)) {
            let mut word = [0; WORD];
            word[..bytes.len()].copy_from_slice(bytes);
            slot.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.version.store(before + 2, Ordering::Release);
    }

    /// `None` when every attempt met a write.
    fn read(&self) -> Option<String> {
        (0..READ_ATTEMPTS).find_map(|_| {
            let version = self.version.load(Ordering::Acquire);
            let len = (self.len.load(Ordering::Relaxed) as usize).min(WORDS * WORD);
            let words = self.words.iter().take(len.div_ceil(WORD)).map(|word| word.load(Ordering::Relaxed));
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).take(len).collect();
            // The loads above come before the load of the version below.
            fence(Ordering::Acquire);
            let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
            is_whole.then(|| String::from_utf8_lossy(&bytes).into_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_text_is_read_back_and_a_long_one_is_truncated_at_a_character_boundary() {
        let text = SeqlockText::new();
        for written in ["", "short", "exactly8", "a source map: äöü"] {
            text.write(written);
            assert_eq!(text.read().as_deref(), Some(written));
        }
        let long = format!("x{}", "ä".repeat(WORDS * WORD));
        text.write(&long);
        let read = text.read().unwrap();
        assert!(long.starts_with(&read) && (WORDS * WORD - 1..=WORDS * WORD).contains(&read.len()), "{read}");
    }

    #[test]
    fn no_reader_sees_a_mix_of_two_texts() {
        let text = Arc::new(SeqlockText::new());
        let of = |letter: u8| String::from_utf8(vec![letter; 100 + letter as usize]).unwrap();
        let writer = std::thread::spawn({
            let text = text.clone();
            move || (0..20_000u32).for_each(|number| text.write(&of(b'a' + (number % 26) as u8)))
        });
        while !writer.is_finished() {
            let Some(read) = text.read().filter(|read| !read.is_empty()) else { continue };
            assert_eq!(read, of(read.as_bytes()[0]));
        }
        writer.join().unwrap();
        text.write("last");
        assert_eq!(text.read().as_deref(), Some("last"));
    }
}
