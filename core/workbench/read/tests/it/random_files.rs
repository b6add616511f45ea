//! Random pprof files by seed, from small pools of values, so that entries repeat. Not generated, since the round trip does not
//! preserve it (docs/reference/cli.md): repeated labels of one key, labels without key or text, types without any value beside
//! `samples`/`count`, equal types, comments with line breaks, files without a value.

use crate::pprof_messages::{File, Function, Label, Line, Location, Mapping, Sample, ValueType};

const TEXTS: [&str; 12] = [
    "",
    "handle",
    "λ",
    "a;b",
    "<lambda>",
    "_ZN4cart",
    "src/main.rs",
    "/usr/lib/libc.so.6",
    "beef01",
    " ",
    "bytes",
    "{}",
];
const TYPES: [(&str, &str); 8] = [
    ("samples", "count"),
    ("cpu", "nanoseconds"),
    ("wall", "nanoseconds"),
    ("alloc_space", "bytes"),
    ("inuse_space", "bytes"),
    ("contentions", "count"),
    ("objects", "count"),
    ("delay", ""),
];
const LABELS: [&str; 5] = ["http.route", "thread", "trace_id", "span_id", "bytes"];
const LABEL_TEXTS: [&str; 7] = [
    "/cart/{id}",
    " ",
    "0af7651916cd43dd8448eb211c80319c",
    "0AF7651916CD43DD8448EB211C80319C",
    "00000000000000000000000000000000",
    "b7ad6b7169203331",
    "0000000000000000",
];
const COMMENTS: [&str; 6] = ["service.name=checkout", "Built with go=1", "a.b=", "a.b=c", "", "line"];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True once in `times`.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Mostly small, often 0, sometimes negative or at the limits.
    fn number(&mut self) -> i64 {
        match self.below(8) {
            0 | 1 => 0,
            2 => -(self.below(1000) as i64),
            3 => self.pick(&[i64::MIN, i64::MAX, 1 << 40]),
            _ => self.below(1000) as i64,
        }
    }
}

struct Builder {
    random: Random,
    file: File,
}

/// The file of a seed.
pub fn random_file(seed: u64) -> File {
    let mut builder = Builder { random: Random(seed), file: File::default() };
    builder.file.string_table.push(String::new());
    builder.string("a.text=1");
    builder.types();
    builder.symbols();
    builder.samples();
    builder.settings();
    builder.file
}

impl Builder {
    fn string(&mut self, text: &str) -> i64 {
        let table = &mut self.file.string_table;
        let at = table.iter().position(|known| known == text).unwrap_or_else(|| {
            table.push(text.to_owned());
            table.len() - 1
        });
        at as i64
    }

    fn text(&mut self) -> i64 {
        let text = self.random.pick(&TEXTS);
        self.string(text)
    }

    fn value_type(&mut self, (kind, unit): (&str, &str)) -> ValueType {
        ValueType { kind: self.string(kind), unit: self.string(unit) }
    }

    fn types(&mut self) {
        let count = 1 + self.random.below(4);
        let mut types: Vec<(&str, &str)> = Vec::new();
        // As written by Go: counts, then the time.
        if self.random.once_in(3) {
            types.extend([TYPES[0], TYPES[1]]);
        }
        while types.len() < count {
            let of = self.random.pick(&TYPES);
            if !types.contains(&of) {
                types.push(of);
            }
        }
        self.file.sample_type = types.iter().map(|of| self.value_type(*of)).collect();
        match self.random.below(6) {
            0 => {}
            1 => self.file.period_type = Some(self.value_type(("space", "bytes"))),
            2 => self.file.period_type = Some(self.value_type(TYPES[0])),
            _ => self.file.period_type = Some(self.value_type(TYPES[1])),
        }
        self.file.period = self.random.pick(&[0, 10_000_000, 10_000_000, 1, -3]);
    }

    fn symbols(&mut self) {
        for nth in 0..self.random.below(4) {
            let is_empty = self.random.once_in(4);
            let address = |random: &mut Random| if is_empty { 0 } else { random.next() >> random.below(64) };
            let mapping = Mapping {
                id: 10 - nth as u64,
                memory_start: address(&mut self.random),
                memory_limit: address(&mut self.random),
                file_offset: address(&mut self.random),
                filename: if is_empty { 0 } else { self.text() },
                build_id: if is_empty { 0 } else { self.text() },
                has_functions: self.random.once_in(2),
                has_filenames: self.random.once_in(2),
                has_line_numbers: self.random.once_in(2),
                has_inline_frames: self.random.once_in(2),
            };
            self.file.mapping.push(mapping);
        }
        for nth in 0..1 + self.random.below(5) {
            let function = Function {
                id: if nth == 3 { u64::MAX } else { nth as u64 + 1 },
                name: self.text(),
                system_name: self.text(),
                filename: self.text(),
                start_line: self.random.number(),
            };
            self.file.function.push(function);
        }
        for nth in 0..1 + self.random.below(6) {
            let lines = self.random.pick(&[0, 1, 1, 1, 2, 3]);
            let line = (0..lines)
                .map(|_| {
                    let function = self.random.below(self.file.function.len());
                    Line {
                        function_id: self.file.function[function].id,
                        line: self.random.number(),
                        column: if self.random.once_in(3) { self.random.number() } else { 0 },
                    }
                })
                .collect();
            let mapping = self.random.below(self.file.mapping.len() + 1);
            let location = Location {
                id: 100 - nth as u64,
                mapping_id: self.file.mapping.get(mapping).map_or(0, |mapping| mapping.id),
                address: if self.random.once_in(2) { self.random.next() } else { 0 },
                line,
                is_folded: self.random.once_in(5),
            };
            self.file.location.push(location);
        }
    }

    fn samples(&mut self) {
        let width = self.file.sample_type.len();
        let counts = self
            .file
            .sample_type
            .iter()
            .position(|of| *of == ValueType { kind: self.position("samples"), unit: self.position("count") });
        let exact = self.file.sample_type.iter().position(|of| Some(*of) == self.file.period_type);
        let follows = self.random.once_in(2);
        // A type without any value.
        let empty = if self.random.once_in(4) { Some(self.random.below(width)) } else { None };
        for nth in 0..1 + self.random.below(8) {
            let depth = self.random.below(6);
            let location_id =
                (0..depth).map(|_| self.file.location[self.random.below(self.file.location.len())].id).collect();
            let mut value: Vec<i64> = (0..width).map(|_| self.random.number()).collect();
            if let Some(empty) = empty {
                value[empty] = 0;
            }
            if nth == 0 {
                value[0] = 1 + self.random.below(100) as i64;
            }
            if let (Some(counts), Some(exact)) = (counts, exact) {
                if counts != exact {
                    value[exact] = if follows {
                        value[counts].saturating_mul(self.file.period)
                    } else {
                        1 + self.random.below(1 << 30) as i64
                    };
                }
            }
            let label = self.labels();
            self.file.sample.push(Sample { location_id, value, label });
        }
    }

    fn position(&self, text: &str) -> i64 {
        self.file.string_table.iter().position(|known| known == text).map_or(-1, |at| at as i64)
    }

    fn labels(&mut self) -> Vec<Label> {
        let mut labels: Vec<Label> = Vec::new();
        for key in LABELS {
            if !self.random.once_in(3) {
                continue;
            }
            let key = self.string(key);
            labels.push(match self.random.once_in(2) {
                true => {
                    let text = self.random.pick(&LABEL_TEXTS);
                    Label { key, str: self.string(text), ..Label::default() }
                }
                false => {
                    let num_unit = self.text();
                    Label { key, num: self.random.number(), num_unit, ..Label::default() }
                }
            });
        }
        if self.random.once_in(4) {
            let unit = self.random.pick(&["nanoseconds", "", "ns"]);
            let num = self.random.number();
            let (key, num_unit) = (self.string("end_timestamp_ns"), self.string(unit));
            labels.push(Label { key, num, num_unit, ..Label::default() });
        }
        labels
    }

    fn settings(&mut self) {
        self.file.time_nanos = self.random.pick(&[0, 1, 1_700_000_000_000_000_000, i64::MAX]);
        self.file.duration_nanos = self.random.pick(&[0, 1, 10_000_000_000, i64::MAX]);
        self.file.drop_frames = self.text();
        self.file.keep_frames = self.text();
        self.file.doc_url = self.text();
        self.file.default_sample_type = match self.random.below(3) {
            0 => 0,
            1 => self.file.sample_type[self.random.below(self.file.sample_type.len())].kind,
            _ => self.text(),
        };
        for _ in 0..self.random.below(4) {
            let comment = self.random.pick(&COMMENTS);
            let comment = self.string(comment);
            self.file.comment.push(comment);
        }
    }
}
