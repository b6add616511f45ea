//! A source map's text into segments. The input is hostile until decoded: sizes are bounded, nothing indexes unchecked.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;

use super::{path, Limits, MapError, Segment, SourceMap, NO_SOURCE};

#[derive(Deserialize)]
struct Text<'a> {
    version: Option<serde_json::Number>,
    #[serde(rename = "sourceRoot", borrow, default)]
    source_root: Option<Cow<'a, str>>,
    #[serde(default)]
    sources: Option<Vec<Option<String>>>,
    #[serde(borrow, default)]
    mappings: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    sections: Option<Vec<Section<'a>>>,
}

#[derive(Deserialize)]
struct Section<'a> {
    offset: Offset,
    #[serde(borrow, default)]
    map: Option<Box<Text<'a>>>,
}

#[derive(Deserialize, Clone, Copy)]
struct Offset {
    line: u32,
    column: u32,
}

/// Decodes a map whose relative sources lie beside `base`, the path or URL of the map itself.
pub fn decode(text: &[u8], base: &str, limits: &Limits) -> Result<SourceMap, MapError> {
    if text.len() > limits.text_bytes {
        return Err(MapError::TooLarge("bytes"));
    }
    let text = std::str::from_utf8(text).map_err(|_| malformed("it is not UTF-8"))?;
    // A first line that keeps scripts from running it; and the mark of an encoding.
    let text = text.trim_start_matches('\u{feff}');
    let text = match text.strip_prefix(")]}") {
        Some(rest) => rest.split_once('\n').map_or("", |(_, rest)| rest),
        None => text,
    };
    let text: Text<'_> = serde_json::from_str(text).map_err(|error| MapError::Malformed(error.to_string()))?;
    let mut decoder = Decoder { map: SourceMap::default(), base, limits, sections: 0 };
    decoder.take(&text, Offset { line: 0, column: 0 }, 0)?;
    decoder.map.segments.shrink_to_fit();
    Ok(decoder.map)
}

fn malformed(what: &str) -> MapError {
    MapError::Malformed(what.to_owned())
}

struct Decoder<'a> {
    map: SourceMap,
    base: &'a str,
    limits: &'a Limits,
    sections: usize,
}

impl Decoder<'_> {
    fn take(&mut self, text: &Text<'_>, offset: Offset, depth: usize) -> Result<(), MapError> {
        if text.version.as_ref().is_none_or(|version| version.as_f64() != Some(3.0)) {
            return Err(malformed("its version is not 3"));
        }
        match (&text.sections, &text.mappings) {
            (Some(_), _) if depth >= self.limits.nesting => Err(MapError::TooLarge("nested sections")),
            (Some(sections), _) => self.sections(sections, offset, depth),
            (None, Some(mappings)) => self.plain(text, mappings, offset),
            (None, None) => Err(malformed("it has neither mappings nor sections")),
        }
    }

    fn sections(&mut self, sections: &[Section<'_>], outer: Offset, depth: usize) -> Result<(), MapError> {
        self.sections += sections.len();
        if self.sections > self.limits.sections {
            return Err(MapError::TooLarge("sections"));
        }
        let mut before = None;
        for section in sections {
            let here = (section.offset.line, section.offset.column);
            if before.is_some_and(|before| here < before) {
                return Err(malformed("its sections are not in order"));
            }
            before = Some(here);
            let offset = moved(section.offset, outer).ok_or_else(outside)?;
            self.cut(offset)?;
            match &section.map {
                Some(map) => self.take(map, offset, depth + 1)?,
                // By URL, as nobody writes them: unknown ground.
                None => continue,
            }
        }
        Ok(())
    }

    /// A section ends the one before it: nothing of that one reaches beyond.
    fn cut(&mut self, offset: Offset) -> Result<(), MapError> {
        let here = (offset.line, offset.column);
        let kept = self.map.segments.partition_point(|segment| (segment.line, segment.column) < here);
        self.map.segments.truncate(kept);
        match kept {
            0 => Ok(()),
            _ => self.push(Segment {
                line: offset.line,
                column: offset.column,
                source: NO_SOURCE,
                source_line: 0,
                source_column: 0,
            }),
        }
    }

    fn push(&mut self, segment: Segment) -> Result<(), MapError> {
        if self.map.segments.len() >= self.limits.segments {
            return Err(MapError::TooLarge("segments"));
        }
        self.map.segments.push(segment);
        Ok(())
    }

    fn plain(&mut self, text: &Text<'_>, mappings: &str, offset: Offset) -> Result<(), MapError> {
        let first_source = self.map.sources.len();
        let root = text.source_root.as_deref().unwrap_or("");
        let sources = text.sources.as_deref().unwrap_or(&[]);
        if first_source + sources.len() > self.limits.sources {
            return Err(MapError::TooLarge("sources"));
        }
        let base = self.base;
        let place = |source: &String| Arc::from(path::source(base, root, source));
        self.map.sources.extend(sources.iter().map(|source| source.as_ref().map(place)));
        let mut first_segment = self.map.segments.len();
        let mut state = State { line: offset.line, column: offset.column as i64, ..State::default() };
        for (index, line) in mappings.split(';').enumerate() {
            if index > 0 {
                state.line = state.line.checked_add(1).ok_or_else(outside)?;
                state.column = 0;
            }
            for segment in line.split(',').filter(|segment| !segment.is_empty()) {
                let segment = state.segment(segment, sources.len(), first_source)?;
                if (segment.line, segment.column) < (offset.line, offset.column) {
                    return Err(outside());
                }
                if self.map.segments.len() == first_segment && self.uncut(&segment) {
                    first_segment -= 1;
                }
                self.push(segment)?;
            }
        }
        let segments = &mut self.map.segments[first_segment..];
        if !segments.is_sorted_by_key(|segment| (segment.line, segment.column)) {
            segments.sort_by_key(|segment| (segment.line, segment.column));
        }
        Ok(())
    }

    /// The mark of a cut gives way to a segment at the same place.
    fn uncut(&mut self, segment: &Segment) -> bool {
        let same = |last: &mut Segment| (last.line, last.column) == (segment.line, segment.column);
        self.map.segments.pop_if(same).is_some()
    }
}

fn outside() -> MapError {
    malformed("a segment lies outside of any file")
}

/// A section's offset counts from its map's own; the column only on the first line.
fn moved(inner: Offset, outer: Offset) -> Option<Offset> {
    let column = if inner.line == 0 { inner.column.checked_add(outer.column)? } else { inner.column };
    Some(Offset { line: inner.line.checked_add(outer.line)?, column })
}

#[derive(Default)]
struct State {
    line: u32,
    column: i64,
    source: i64,
    source_line: i64,
    source_column: i64,
}

impl State {
    fn segment(&mut self, text: &str, sources: usize, first_source: usize) -> Result<Segment, MapError> {
        let mut fields = [0i64; 5];
        let mut count = 0;
        let mut digits = text.bytes();
        while let Some(value) = number(&mut digits)? {
            *fields.get_mut(count).ok_or_else(|| malformed("a segment has more than 5 fields"))? = value;
            count += 1;
        }
        let [column, source, source_line, source_column, _name] = fields;
        self.column += column;
        let line = self.line;
        let column = place(self.column)?;
        match count {
            1 => Ok(Segment { line, column, source: NO_SOURCE, source_line: 0, source_column: 0 }),
            4 | 5 => {
                self.source += source;
                self.source_line += source_line;
                self.source_column += source_column;
                let source = usize::try_from(self.source).ok().filter(|source| *source < sources);
                let source = source.ok_or_else(|| malformed("a segment names a source that is not listed"))?;
                Ok(Segment {
                    line,
                    column,
                    source: (first_source + source) as u32,
                    source_line: place(self.source_line)?,
                    source_column: place(self.source_column)?,
                })
            }
            _ => Err(malformed("a segment has 2 or 3 fields")),
        }
    }
}

fn place(number: i64) -> Result<u32, MapError> {
    // V8's own texts are shorter.
    u32::try_from(number).ok().filter(|number| *number < 1 << 30).ok_or_else(outside)
}

/// One base-64 VLQ number; `None` at the end.
fn number(digits: &mut impl Iterator<Item = u8>) -> Result<Option<i64>, MapError> {
    let mut value = 0i64;
    let mut shift = 0;
    let Some(mut letter) = digits.next() else { return Ok(None) };
    loop {
        let digit = digit(letter).ok_or_else(|| malformed("a mapping has a letter that is no digit"))?;
        value |= ((digit & 31) as i64) << shift;
        if digit & 32 == 0 {
            break;
        }
        shift += 5;
        if shift > 30 {
            return Err(malformed("a number has more than 32 bits"));
        }
        letter = digits.next().ok_or_else(|| malformed("a number ends in the middle"))?;
    }
    Ok(Some(if value & 1 == 1 { -(value >> 1) } else { value >> 1 }))
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
