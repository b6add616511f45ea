//! Source maps of classes with code of other files (JSR-45): inline functions of Kotlin. Lines after the end of the file, which
//! the compiler made up, denote a line of the inline function, and the line that calls it. Not here: reading the map (`methods`).

use std::collections::HashMap;
use std::sync::Arc;

/// Kotlin's stratum with the line that calls each inline function.
const CALLS: &str = "KotlinDebug";

/// The lines of one method that have another place in the source.
pub struct ClassSourceMap {
    places: Vec<Range>,
    calls: Vec<Range>,
}

/// The place of a line in the source.
#[derive(Debug, PartialEq)]
pub struct Place {
    pub file: Arc<str>,
    /// The class that has the inline function, as in the source.
    pub class: Arc<str>,
    pub line: u32,
    /// The line that calls the inline function; `None` if the line is no inlined code.
    pub called_at: Option<u32>,
}

/// A row of a line section: output lines `output..output + len`, of which each `increment` are one input line.
struct Range {
    output: u32,
    len: u32,
    increment: u32,
    input: u32,
    file: Arc<str>,
    class: Arc<str>,
}

impl ClassSourceMap {
    /// The map of a method with these lines, in a class of `own_file`; `None` if all of them are in their own place.
    pub fn of(text: &str, own_file: &str, lines: &[(u16, u32)]) -> Option<Self> {
        let mut rows = text.lines();
        let (signature, _, default) = (rows.next()?, rows.next()?, rows.next()?.trim());
        // A map of more than 64 KiB is cut into several constants.
        if signature != "SMAP" || !text.trim_end().ends_with("*E") {
            return None;
        }
        let (mut map, mut files) = (Self { places: Vec::new(), calls: Vec::new() }, HashMap::new());
        let (mut stratum, mut section, mut file) = ("", "", 0);
        while let Some(row) = rows.next() {
            if let Some(head) = row.strip_prefix('*') {
                (section, file) = (head.get(..1).unwrap_or_default(), 0);
                if section == "S" {
                    stratum = head[1..].trim();
                    files.clear();
                }
            } else if section == "F" {
                let with_path = row.strip_prefix("+ ");
                let path = with_path.and_then(|_| rows.next()).unwrap_or_default();
                let (id, name) = with_path.unwrap_or(row).trim().split_once(' ')?;
                files.insert(id.parse().ok()?, (Arc::from(name.trim()), Arc::from(path.trim().replace('/', "."))));
            } else if section == "L" && (stratum == default || stratum == CALLS) {
                let ranges = if stratum == CALLS { &mut map.calls } else { &mut map.places };
                ranges.push(range(row, &mut file, &files)?);
            }
        }
        let has_line = |range: &Range| lines.iter().any(|(_, line)| range.input_of(*line).is_some());
        let is_elsewhere =
            |range: &Range| &*range.file != own_file || range.input != range.output || range.increment > 1;
        map.places.retain(|range| is_elsewhere(range) && has_line(range));
        map.calls.retain(has_line);
        (!map.places.is_empty()).then_some(map)
    }

    pub fn place(&self, line: u32) -> Option<Place> {
        let (range, line_in_file) = self.places.iter().find_map(|range| Some((range, range.input_of(line)?)))?;
        Some(Place {
            file: range.file.clone(),
            class: range.class.clone(),
            line: line_in_file,
            called_at: self.calls.iter().find_map(|range| range.input_of(line)),
        })
    }
}

impl Range {
    fn input_of(&self, line: u32) -> Option<u32> {
        let distance = line.checked_sub(self.output).filter(|distance| *distance < self.len)?;
        self.input.checked_add(distance / self.increment)
    }
}

/// Parses `input#file,count:output,increment`; file, count and increment may be missing.
fn range(row: &str, file: &mut u32, files: &HashMap<u32, (Arc<str>, Arc<str>)>) -> Option<Range> {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let (input, output) = row.split_once(':')?;
    let (input, count) = input.split_once(',').unwrap_or((input, "1"));
    let (output, increment) = output.split_once(',').unwrap_or((output, "1"));
    let (input, id) = input.split_once('#').map_or((input, None), |(input, id)| (input, Some(id)));
    *file = id.map_or(Some(*file), number)?;
    let (name, class) = files.get(file)?;
    let increment = number(increment)?.max(1);
    Some(Range {
        output: number(output)?,
        len: number(count)?.checked_mul(increment)?,
        increment,
        input: number(input)?,
        file: name.clone(),
        class: class.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the Kotlin compiler writes it: `burn` of Inline.kt, inlined twice into Main.kt of 11 lines.
    const KOTLIN: &str =
        "SMAP\nMain.kt\nKotlin\n*S Kotlin\n*F\n+ 1 Main.kt\nshop/MainKt\n+ 2 Inline.kt\nshop/InlineKt\n*L\n\
        1#1,11:1\n5#2,8:12\n5#2,8:20\n*S KotlinDebug\n*F\n+ 1 Main.kt\nshop/MainKt\n*L\n5#1:12,8\n7#1:20,8\n*E\n";

    #[test]
    fn a_line_of_an_inline_function_has_its_file_its_line_and_its_call() {
        let map = ClassSourceMap::of(KOTLIN, "Main.kt", &[(0, 4), (9, 12), (20, 14), (30, 22)]).unwrap();
        let place = |line: u32| map.place(line).map(|place| (place.file.to_string(), place.line, place.called_at));
        assert_eq!(place(14), Some(("Inline.kt".to_owned(), 7, Some(5))));
        assert_eq!(place(22), Some(("Inline.kt".to_owned(), 7, Some(7))));
        assert_eq!(&*map.place(14).unwrap().class, "shop.InlineKt");
        assert_eq!([4, 28].map(place), [None, None]);
        assert!(ClassSourceMap::of(KOTLIN, "Main.kt", &[(0, 3), (5, 9)]).is_none(), "a method without inlined code");
    }

    #[test]
    fn several_lines_can_have_one_place_and_places_without_a_call() {
        let text = "SMAP\nA.kt\nKotlin\n*S Kotlin\n*F\n0 B.kt\n*L\n1,3:100,2\n7:110\n*E\n";
        let map = ClassSourceMap::of(text, "A.kt", &[(0, 100), (4, 105), (8, 110)]).unwrap();
        let place = |line: u32| map.place(line).map(|place| (place.line, place.called_at));
        assert_eq!([101, 105, 106, 110].map(place), [Some((1, None)), Some((3, None)), None, Some((7, None))]);
    }

    #[test]
    fn a_damaged_map_is_not_used() {
        for length in 0..KOTLIN.len() {
            assert!(
                ClassSourceMap::of(&KOTLIN[..length], "Main.kt", &[(0, 14)]).is_none_or(|_| length + 2 > KOTLIN.len())
            );
            ClassSourceMap::of(&format!("{}\n*E", &KOTLIN[..length]), "Main.kt", &[(0, 14)]);
        }
        let row = |row: &str| KOTLIN.replace("5#2,8:12", row);
        for text in ["5#9:12", "x:12", "5#2", "5#2,4294967295:12,2", "4294967295#2,8:12", ":", "*"].map(row) {
            let map = ClassSourceMap::of(&text, "Main.kt", &[(0, 14)]);
            assert!(map.is_none_or(|map| map.place(14).is_none()), "{text}");
        }
    }
}
