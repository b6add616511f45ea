//! Decodes a source map into segments. The input is untrusted: sizes are bounded, and every index is checked.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;

use super::{path, MapError, Segment, SourceMap, SourceMapLimits, NO_SOURCE};

#[derive(Deserialize)]
struct SourceMapJson<'a> {
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
    map: Option<Box<SourceMapJson<'a>>>,
}

#[derive(Deserialize, Clone, Copy)]
struct Offset {
    line: u32,
    column: u32,
}

/// Decodes a map. Relative sources are resolved against `base`, the path or URL of the map itself.
pub fn decode(text: &[u8], base: &str, limits: &SourceMapLimits) -> Result<SourceMap, MapError> {
    if text.len() > limits.text_bytes {
        return Err(MapError::TooLarge("bytes"));
    }
    let text = std::str::from_utf8(text).map_err(|_| malformed("it is not UTF-8"))?;
    // A byte order mark, and a first line that prevents execution as a script (ECMA-426).
    let text = text.trim_start_matches('\u{feff}');
    let text = match text.strip_prefix(")]}") {
        Some(rest) => rest.split_once('\n').map_or("", |(_, rest)| rest),
        None => text,
    };
    let text: SourceMapJson<'_> = serde_json::from_str(text).map_err(|error| MapError::Malformed(error.to_string()))?;
    let mut decoder = Decoder { map: SourceMap::default(), base, limits, sections: 0 };
    decoder.add_map(&text, Offset { line: 0, column: 0 }, 0)?;
    decoder.map.segments.shrink_to_fit();
    Ok(decoder.map)
}

fn malformed(what: &str) -> MapError {
    MapError::Malformed(what.to_owned())
}

struct Decoder<'a> {
    map: SourceMap,
    base: &'a str,
    limits: &'a SourceMapLimits,
    sections: usize,
}

impl Decoder<'_> {
    fn add_map(&mut self, text: &SourceMapJson<'_>, offset: Offset, depth: usize) -> Result<(), MapError> {
        if text.version.as_ref().is_none_or(|version| version.as_f64() != Some(3.0)) {
            return Err(malformed("its version is not 3"));
        }
        match (&text.sections, &text.mappings) {
            (Some(_), _) if depth >= self.limits.nesting => Err(MapError::TooLarge("nested sections")),
            (Some(sections), _) => self.sections(sections, offset, depth),
            (None, Some(mappings)) => self.add_mappings(text, mappings, offset),
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
            let offset = absolute_offset(section.offset, outer).ok_or_else(out_of_range)?;
            self.end_section(offset)?;
            match &section.map {
                Some(map) => self.add_map(map, offset, depth + 1)?,
                // A section by URL, which no tool writes, has no segments.
                None => continue,
            }
        }
        Ok(())
    }

    /// A section ends the previous one: its segments do not extend into the next.
    fn end_section(&mut self, offset: Offset) -> Result<(), MapError> {
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

    fn add_mappings(&mut self, text: &SourceMapJson<'_>, mappings: &str, offset: Offset) -> Result<(), MapError> {
        let first_source = self.map.sources.len();
        let root = text.source_root.as_deref().unwrap_or("");
        let sources = text.sources.as_deref().unwrap_or(&[]);
        if first_source + sources.len() > self.limits.sources {
            return Err(MapError::TooLarge("sources"));
        }
        let base = self.base;
        let source_path = |source: &String| Arc::from(path::source(base, root, source));
        self.map.sources.extend(sources.iter().map(|source| source.as_ref().map(source_path)));
        let mut first_segment = self.map.segments.len();
        let mut state = MappingState { line: offset.line, column: offset.column as i64, ..MappingState::default() };
        for (index, line) in mappings.split(';').enumerate() {
            if index > 0 {
                state.line = state.line.checked_add(1).ok_or_else(out_of_range)?;
                state.column = 0;
            }
            for segment in line.split(',').filter(|segment| !segment.is_empty()) {
                let segment = state.segment(segment, sources.len(), first_source)?;
                if (segment.line, segment.column) < (offset.line, offset.column) {
                    return Err(out_of_range());
                }
                if self.map.segments.len() == first_segment && self.remove_end_marker(&segment) {
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

    /// Removes the end marker of a section at the location of this segment.
    fn remove_end_marker(&mut self, segment: &Segment) -> bool {
        let same = |last: &mut Segment| (last.line, last.column) == (segment.line, segment.column);
        self.map.segments.pop_if(same).is_some()
    }
}

fn out_of_range() -> MapError {
    malformed("a segment lies outside of any file")
}

/// A section's offset is relative to its enclosing map; the column only on the first line.
fn absolute_offset(inner: Offset, outer: Offset) -> Option<Offset> {
    let column = if inner.line == 0 { inner.column.checked_add(outer.column)? } else { inner.column };
    Some(Offset { line: inner.line.checked_add(outer.line)?, column })
}

#[derive(Default)]
struct MappingState {
    line: u32,
    column: i64,
    source: i64,
    source_line: i64,
    source_column: i64,
}

impl MappingState {
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
        let column = coordinate(self.column)?;
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
                    source_line: coordinate(self.source_line)?,
                    source_column: coordinate(self.source_column)?,
                })
            }
            _ => Err(malformed("a segment has 2 or 3 fields")),
        }
    }
}

fn coordinate(number: i64) -> Result<u32, MapError> {
    // V8's longest sources are shorter.
    u32::try_from(number).ok().filter(|number| *number < 1 << 30).ok_or_else(out_of_range)
}

/// One base64 VLQ number; `None` at the end.
fn number(digits: &mut impl Iterator<Item = u8>) -> Result<Option<i64>, MapError> {
    let mut value = 0i64;
    let mut shift = 0;
    let Some(mut letter) = digits.next() else { return Ok(None) };
    loop {
        let digit = digit(letter).ok_or_else(|| malformed("a mapping has a letter that is not a digit"))?;
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
