//! The public names of the Rust crate equal those of `core/conformance/surface.yaml`. A name that the crate lacks does not
//! compile; a name that the file lacks fails.

use std::path::PathBuf;

/// Uses each name and returns the names as text.
macro_rules! names {
    (values: $($value:ident),+; types: $($type:ident $(<$parameter:ty>)?),+ $(,)?) => {{
        $(#[allow(unused_imports)] use spanprof::$value as _;)+
        $(let _: Option<std::marker::PhantomData<spanprof::$type $(<$parameter>)?>> = None;)+
        let mut names = vec![$(stringify!($value)),+];
        names.extend([$(stringify!($type)),+]);
        names
    }};
}

macro_rules! methods {
    ($type:ident: $($method:ident),+) => {{
        $(let _ = spanprof::$type::$method;)+
        vec![$(stringify!($method)),+]
    }};
}

#[test]
fn conformance_the_public_names_equal_the_surface_case() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance/surface.yaml");
    let surface: serde_norway::Value = serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let sorted = |listed: &serde_norway::Value| {
        let names = listed.as_sequence().unwrap().iter();
        let mut names: Vec<_> = names.map(|name| name.as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let listed = |part: &str| sorted(&surface["rust"][part]);
    let mut crate_names = names!(
        values: bind, bind_future, set_log_callback, tag_future, tag_wrapper;
        types: Config, ConfigPatch, ConfigValue, Error, ErrorKind, Labels, LogLevel, Profiler, StatValue, Stats, TagScope,
            TaggedFuture<()>
    );
    crate_names.sort_unstable();
    assert_eq!(crate_names, listed("crate"));
    let mut profiler = methods!(Profiler: start, stop, flush, update, stats, is_running);
    profiler.sort_unstable();
    assert_eq!(profiler, listed("Profiler"));
}

#[test]
fn conformance_every_concept_has_a_listed_name_in_every_language() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance/surface.yaml");
    let surface: serde_norway::Value = serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let concepts = surface["concepts"].as_sequence().unwrap();
    assert!(concepts.len() >= 9, "only {} concepts", concepts.len());
    for concept in concepts {
        let name_of = |language: &str| concept["names"][language].as_str().unwrap_or_default();
        let last =
            |language: &str| name_of(language).rsplit('.').next().unwrap_or_default().to_lowercase().replace('_', "");
        for (language, main) in [("rust", "crate"), ("python", "spanprof"), ("node", "spanprof"), ("java", "Spanprof")]
        {
            let (part, name) = name_of(language).rsplit_once('.').unwrap_or((main, name_of(language)));
            let listed = surface[language][part].as_sequence().unwrap();
            assert!(
                listed.iter().any(|known| known.as_str() == Some(name)),
                "{language} has no {part}.{name}: {concept:?}"
            );
        }
        let differs = ["python", "node", "java"].into_iter().any(|language| last(language) != last("rust"));
        assert!(!differs || concept["difference"].is_string(), "a name without a reason: {concept:?}");
    }
}

#[test]
fn conformance_every_listed_name_is_a_concept_or_has_a_reason() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance/surface.yaml");
    let surface: serde_norway::Value = serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let sequence = |value: &serde_norway::Value| value.as_sequence().cloned().unwrap_or_default();
    let text = |value: &serde_norway::Value| value.as_str().unwrap_or_default().to_owned();
    for (language, main) in [("rust", "crate"), ("python", "spanprof"), ("node", "spanprof"), ("java", "Spanprof")] {
        let qualified = |name: String| if name.contains('.') { name } else { format!("{main}.{name}") };
        let mut explained = Vec::new();
        for concept in sequence(&surface["concepts"]) {
            explained.push(qualified(text(&concept["names"][language])));
        }
        for group in sequence(&surface["additional"]) {
            assert!(group["reason"].is_string(), "names without a reason: {group:?}");
            explained.extend(sequence(&group["names"][language]).iter().map(|name| qualified(text(name))));
        }
        let mut listed = Vec::new();
        for (part, names) in surface[language].as_mapping().unwrap() {
            listed.extend(sequence(names).iter().map(|name| format!("{}.{}", text(part), text(name))));
        }
        explained.sort();
        listed.sort();
        assert_eq!(explained, listed, "{language}");
    }
}
