//! Own code by configuration (`own_code`): prefixes of paths and packages instead of the rules. The profile carries the result: a
//! location of which a line matches, or is own code by the rules only, has the attribute `spanprof.frame.origin` with one origin for
//! all its lines, or one per line, innermost first, separated by spaces. pprof has no attributes of locations: a comment has the
//! prefixes, from which the decoder makes the attributes.

use super::{CodeOrigin, RecordedOrigin};
use crate::{AttributeId, AttributeSetId, Dictionary, FrameType, Line, LocationId, Value};

/// Prefixes of own code. Without one, the rules apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnCode {
    prefixes: Vec<String>,
    /// The prefixes that leave the process.
    shown: Vec<String>,
}

impl OwnCode {
    /// Own code by these prefixes; commas separate several in one text.
    pub fn new<T: AsRef<str>>(prefixes: impl IntoIterator<Item = T>) -> Self {
        let split = |text: T| text.as_ref().split(',').map(|prefix| prefix.trim().to_owned()).collect::<Vec<_>>();
        let prefixes: Vec<String> = prefixes.into_iter().flat_map(split).filter(|prefix| !prefix.is_empty()).collect();
        Self { shown: prefixes.clone(), prefixes }
    }

    /// With the prefixes that `redact` returns in [`Self::to_text`], as the paths and names in the profile are redacted. `None`
    /// removes a prefix.
    pub fn shown_as(self, mut redact: impl FnMut(&str) -> Option<String>) -> Self {
        let redacted = |prefix: &String| {
            // Rules for the paths below a directory end with a separator.
            let is_directory = prefix.starts_with('/') && !prefix.ends_with('/');
            let text = if is_directory { format!("{prefix}/") } else { prefix.clone() };
            let shown = redact(&text)?;
            Some(if shown == text { prefix.clone() } else { shown }).filter(|shown| !shown.is_empty())
        };
        Self { shown: self.prefixes.iter().filter_map(redacted).collect(), ..self }
    }

    /// Whether the rules apply.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// The shown prefixes as one text for [`Self::new`].
    pub fn to_text(&self) -> String {
        self.shown.join(",")
    }

    /// Whether a function is own code: a prefix begins its path, a directory in it if the prefix is relative, or its name. A prefix
    /// ends where a name ends: `/srv/shop` does not match `/srv/shopping/a.py`.
    pub fn matches(&self, function: &str, file: &str) -> bool {
        let path = file.strip_prefix("file://").unwrap_or(file);
        let name = function.trim_start_matches(['<', '&', '*', '(']);
        self.prefixes.iter().any(|prefix| {
            let is_directory = || path.match_indices('/').any(|(at, _)| rest(&path[at + 1..], prefix).is_some());
            rest(path, prefix).is_some()
                || (!prefix.starts_with('/') && is_directory())
                || rest(name, prefix).is_some_and(|rest| !rest.is_empty())
        })
    }

    /// The origin of a function where it does not follow from the rules alone.
    fn origin(&self, function: &str, file: &str, frame_type: FrameType) -> Option<CodeOrigin> {
        if self.is_empty() {
            return None;
        }
        if self.matches(function, file) {
            return Some(CodeOrigin::Own);
        }
        (CodeOrigin::of(function, file, frame_type) == CodeOrigin::Own).then_some(CodeOrigin::Library)
    }

    /// The attribute of a location with these lines; `None` where the origins follow from the rules.
    pub fn attribute(&self, dictionary: &mut Dictionary, lines: &[Line], frame_type: FrameType) -> Option<AttributeId> {
        if self.is_empty() {
            return None;
        }
        let names = lines.iter().map(|line| {
            let function = dictionary.get_function(line.function);
            [function.name, function.filename].map(|text| dictionary.get_string(text))
        });
        let stated: Vec<_> = names.map(|[name, file]| (self.origin(name, file, frame_type), (name, file))).collect();
        stated.iter().find(|(origin, _)| origin.is_some())?;
        let word = |(origin, (name, file)): &(Option<CodeOrigin>, (&str, &str))| {
            origin.unwrap_or_else(|| CodeOrigin::of(name, file, frame_type)).as_str()
        };
        let mut words: Vec<&str> = stated.iter().map(word).collect();
        if words.iter().all(|other| *other == words[0]) {
            words.truncate(1);
        }
        let text = words.join(" ");
        Some(dictionary.attribute(FrameType::ORIGIN_KEY, Value::String(&text), ""))
    }

    /// The attributes of a location: its frame type, and the origins of its lines.
    pub fn attributes(&self, dictionary: &mut Dictionary, lines: &[Line], frame_type: FrameType) -> AttributeSetId {
        let of_type = dictionary.frame_type(frame_type);
        match self.attribute(dictionary, lines, frame_type) {
            None => of_type,
            Some(origin) => {
                let mut ids = dictionary.get_attribute_set(of_type).to_vec();
                ids.push(origin);
                dictionary.attribute_set(&ids)
            }
        }
    }
}

/// What follows a prefix that ends where a name ends.
fn rest<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let rest = text.strip_prefix(prefix)?;
    (!prefix.ends_with(is_word) || !rest.starts_with(is_word)).then_some(rest)
}

/// The stated origins of the lines of a location, innermost first; without end.
pub fn recorded_origins(dictionary: &Dictionary, id: LocationId) -> impl Iterator<Item = RecordedOrigin> {
    let attributes = dictionary.get_location(id).attributes;
    let text = dictionary.attributes_of(attributes).find_map(|attribute| match attribute.value {
        Value::String(text) if attribute.key == FrameType::ORIGIN_KEY => Some(text),
        _ => None,
    });
    let origins: Vec<RecordedOrigin> =
        text.unwrap_or_default().split_whitespace().map(|word| RecordedOrigin(CodeOrigin::from_wire(word))).collect();
    let last = origins.last().copied().unwrap_or_default();
    origins.into_iter().chain(std::iter::repeat(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::FunctionTable;
    use crate::{Function, Location};

    #[test]
    fn prefixes_match_paths_directories_and_packages_up_to_the_end_of_a_name() {
        let own = OwnCode::new(["/srv/shop, com.example.", "billing/", "cart::"]);
        for (function, file) in [
            ("price", "/srv/shop/app.py"),
            ("(anonymous)", "file:///srv/shop/app.mjs"),
            ("com.example.Shop.run", "Shop.java"),
            ("bill", "billing/invoice.py"),
            ("bill", "/usr/lib/python3/dist-packages/billing/invoice.py"),
            ("<cart::Cart as Drop>::drop", "src/lib.rs"),
        ] {
            assert!(own.matches(function, file), "{function} {file}");
        }
        for (function, file) in [
            ("price", "/srv/shopping/app.py"),
            ("price", "/opt/srv/shop/app.py"),
            ("com.examples.Shop.run", "Shop.java"),
            ("bill", "/srv/oldbilling/invoice.py"),
        ] {
            assert!(!own.matches(function, file), "{function} {file}");
        }
        assert!(
            !OwnCode::new(["run"]).matches("run", "/usr/lib/python3.11/asyncio/runners.py"),
            "a function is no package"
        );
        assert!(OwnCode::new(["", " , "]).is_empty());
        assert_eq!(OwnCode::new([own.to_text()]), own);
    }

    /// Origins of the lines of a location, through its attribute.
    fn origins(own: &OwnCode, lines: &[(&str, &str)], frame_type: FrameType) -> (Vec<CodeOrigin>, usize) {
        let mut dictionary = Dictionary::new();
        let lines: Vec<Line> = lines
            .iter()
            .map(|(name, file)| {
                let function = Function {
                    name: dictionary.string(name),
                    filename: dictionary.string(file),
                    ..Function::default()
                };
                Line { function: dictionary.function(function), line: 1, column: 0 }
            })
            .collect();
        let attributes = own.attributes(&mut dictionary, &lines, frame_type);
        let location = dictionary.location(Location { lines: &lines, attributes, ..Location::default() });
        assert_eq!(dictionary.frame_type_of(location), frame_type);
        let mut table = FunctionTable::new(&dictionary);
        let functions: Vec<u32> = table.of_location(location).collect();
        let origins = functions.iter().map(|function| table.rows()[*function as usize].origin()).collect();
        (origins, dictionary.get_attribute_set(attributes).len())
    }

    #[test]
    fn configured_prefixes_replace_the_rules_and_only_differences_are_written() {
        use CodeOrigin::{Library, Own, Runtime};
        use FrameType::{Cpython, Native, Rust};
        let own = OwnCode::new(["shop/", "shop::"]);
        let vendored = ("price", "/venv/lib/python3.11/site-packages/shop/price.py");
        assert_eq!(origins(&own, &[vendored], Cpython), (vec![Own], 2));
        assert_eq!(origins(&own, &[("main", "/srv/other/app.py")], Cpython), (vec![Library], 2));
        assert_eq!(origins(&own, &[("loads", "/usr/lib/python3.11/json/a.py")], Cpython), (vec![Library], 1));
        assert_eq!(origins(&own, &[("work", "/srv/shop/libshop.so")], Native), (vec![Own], 2));
        assert_eq!(origins(&own, &[("malloc", "/lib/libc.so.6")], Native), (vec![Runtime], 1));
        let inlined =
            [("alloc::vec::Vec<T>::push", "/rustc/1/library/alloc/src/vec.rs"), ("shop::price", "src/main.rs")];
        assert_eq!(origins(&own, &inlined, Rust), (vec![Library, Own], 2));
        assert_eq!(origins(&OwnCode::default(), &[vendored], Cpython), (vec![Library], 1));
    }
}
