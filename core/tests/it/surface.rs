//! The public names of the Rust crate, read from its sources, equal those of `core/conformance/surface.yaml`; and each listed
//! name of every language has a concept or a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_norway::Value;
use syn::{ImplItem, Item, UseTree, Visibility};

/// Public names by part: `crate`, a public module (`config`), or a public type (`Profiler`, with its methods). Not here: names
/// that a macro of the crate generates, such as the setters of `ConfigBuilder`, which are the configuration keys.
#[derive(Default)]
struct PublicNames {
    parts: BTreeMap<String, BTreeSet<String>>,
    /// Public methods and constants of every type, public or not.
    methods: Vec<(String, String)>,
}

impl PublicNames {
    fn of_crate(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
        let mut names = Self::default();
        names.read_file(&source.join("lib.rs"), source, Some("crate".to_owned()));
        let own: BTreeSet<String> = names.methods.iter().map(|(of_type, _)| of_type.clone()).collect();
        let own_methods = std::mem::take(&mut names.methods);
        // Methods of types that the crate exports from the crates below it. The handle `Profiler` is a type of its own.
        for crate_below in ["config", "aggregate", "profiler"] {
            let source = source.with_file_name("agent").join(crate_below).join("src");
            names.read_file(&source.join("lib.rs"), &source, None);
        }
        names.methods.retain(|(of_type, _)| !own.contains(of_type));
        names.methods.extend(own_methods);
        let types: BTreeSet<String> = names.parts.values().flatten().cloned().collect();
        for (of_type, method) in names.methods {
            if types.contains(&of_type) {
                names.parts.entry(of_type).or_default().insert(method);
            }
        }
        names.parts
    }

    /// Reads a file; `part` is its public path, `None` for a private module. Modules of the file are in `directory`.
    fn read_file(&mut self, file: &Path, directory: &Path, part: Option<String>) {
        let text = std::fs::read_to_string(file).unwrap();
        self.read_items(&syn::parse_file(&text).unwrap().items, directory, part.as_deref());
    }

    fn read_items(&mut self, items: &[Item], directory: &Path, part: Option<&str>) {
        for item in items {
            let (visibility, attributes, name) = match item {
                Item::Const(item) => (&item.vis, &item.attrs, Some(&item.ident)),
                Item::Enum(item) => (&item.vis, &item.attrs, Some(&item.ident)),
                Item::Fn(item) => (&item.vis, &item.attrs, Some(&item.sig.ident)),
                Item::Mod(item) => (&item.vis, &item.attrs, Some(&item.ident)),
                Item::Static(item) => (&item.vis, &item.attrs, Some(&item.ident)),
                Item::Struct(item) => (&item.vis, &item.attrs, Some(&item.ident)),
                Item::Trait(item) => (&item.vis, &item.attrs, Some(&item.ident)),
                Item::Type(item) => (&item.vis, &item.attrs, Some(&item.ident)),
                Item::Use(item) => (&item.vis, &item.attrs, None),
                Item::Impl(item) if item.trait_.is_none() => {
                    self.read_methods(item);
                    continue;
                }
                _ => continue,
            };
            let is_public = matches!(visibility, Visibility::Public(_)) && !is_hidden(attributes);
            let public_part = part.filter(|_| is_public);
            if let (Some(part), Some(name)) = (public_part, name) {
                self.parts.entry(part.to_owned()).or_default().insert(name.to_string());
            }
            match item {
                Item::Use(item) => {
                    if let Some(part) = public_part {
                        add_leaves(&item.tree, self.parts.entry(part.to_owned()).or_default());
                    }
                }
                Item::Mod(module) if !is_test(attributes) => {
                    let name = module.ident.to_string();
                    let part =
                        public_part.map(|part| if part == "crate" { name.clone() } else { format!("{part}.{name}") });
                    let own = directory.join(&name);
                    match &module.content {
                        Some((_, items)) => self.read_items(items, &own, part.as_deref()),
                        None => {
                            let file = directory.join(format!("{name}.rs"));
                            let file = if file.exists() { file } else { own.join("mod.rs") };
                            self.read_file(&file, &own, part);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn read_methods(&mut self, block: &syn::ItemImpl) {
        let syn::Type::Path(path) = &*block.self_ty else { return };
        let Some(of_type) = path.path.segments.last() else { return };
        for item in &block.items {
            let (visibility, attributes, name) = match item {
                ImplItem::Fn(item) => (&item.vis, &item.attrs, &item.sig.ident),
                ImplItem::Const(item) => (&item.vis, &item.attrs, &item.ident),
                _ => continue,
            };
            if matches!(visibility, Visibility::Public(_)) && !is_hidden(attributes) {
                self.methods.push((of_type.ident.to_string(), name.to_string()));
            }
        }
    }
}

fn is_hidden(attributes: &[syn::Attribute]) -> bool {
    has(attributes, "doc", "hidden")
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    has(attributes, "cfg", "test")
}

fn has(attributes: &[syn::Attribute], name: &str, argument: &str) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident(name) && attribute.parse_args::<syn::Ident>().is_ok_and(|found| found == argument)
    })
}

/// The names that a `use` brings into scope.
fn add_leaves(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => add_leaves(&path.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_leaves(tree, names)),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(rename) => drop(names.insert(rename.rename.to_string())),
        UseTree::Glob(_) => panic!("a public glob import hides its names"),
    }
}

fn surface() -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance/surface.yaml");
    serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn sequence(value: &Value) -> Vec<String> {
    value.as_sequence().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Each language with the part of its names that need no prefix.
const LANGUAGES: [(&str, &str); 4] =
    [("rust", "crate"), ("python", "spanprof"), ("node", "spanprof"), ("java", "Spanprof")];

/// The names of a language by part.
fn parts(surface: &Value, language: &str) -> BTreeMap<String, BTreeSet<String>> {
    let parts = surface[language].as_mapping().unwrap().iter();
    parts.map(|(part, names)| (part.as_str().unwrap().to_owned(), sequence(names).into_iter().collect())).collect()
}

/// The names of a language as `part.name`.
fn listed(surface: &Value, language: &str) -> BTreeSet<String> {
    let parts = parts(surface, language).into_iter();
    parts.flat_map(|(part, names)| names.into_iter().map(move |name| format!("{part}.{name}"))).collect()
}

fn qualified(name: &str, main_part: &str) -> String {
    if name.contains('.') {
        name.to_owned()
    } else {
        format!("{main_part}.{name}")
    }
}

#[test]
fn conformance_the_public_names_equal_the_surface_case() {
    let _serial = crate::profiler::one_at_a_time();
    let found = PublicNames::of_crate(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src"));
    let expected = parts(&surface(), "rust");
    let all: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let differences: Vec<_> = all
        .into_iter()
        .filter(|part| found.get(*part) != expected.get(*part))
        .map(|part| format!("{part}: sources {:?}, case {:?}", found.get(part), expected.get(part)))
        .collect();
    let hint =
        "list each name in core/conformance/surface.yaml with a concept or a reason, then run `cargo xtask docs`";
    assert!(differences.is_empty(), "{hint}\n{}", differences.join("\n"));
}

#[test]
fn conformance_every_concept_has_a_listed_name_in_every_language() {
    let _serial = crate::profiler::one_at_a_time();
    let surface = surface();
    let concepts = surface["concepts"].as_sequence().unwrap();
    assert!(concepts.len() >= 9, "only {} concepts", concepts.len());
    for concept in concepts {
        let name_of = |language: &str| concept["names"][language].as_str().unwrap_or_default();
        let last =
            |language: &str| name_of(language).rsplit('.').next().unwrap_or_default().to_lowercase().replace('_', "");
        for (language, main_part) in LANGUAGES {
            let name = qualified(name_of(language), main_part);
            assert!(listed(&surface, language).contains(&name), "{language} has no {name}: {concept:?}");
        }
        let differs = ["python", "node", "java"].into_iter().any(|language| last(language) != last("rust"));
        assert!(!differs || concept["difference"].is_string(), "a name without a reason: {concept:?}");
    }
}

#[test]
fn conformance_every_listed_name_is_a_concept_or_has_a_reason() {
    let _serial = crate::profiler::one_at_a_time();
    let surface = surface();
    for (language, main_part) in LANGUAGES {
        let mut explained = Vec::new();
        for concept in surface["concepts"].as_sequence().unwrap() {
            explained.push(qualified(concept["names"][language].as_str().unwrap(), main_part));
        }
        for group in surface["additional"].as_sequence().unwrap() {
            assert!(group["reason"].is_string(), "names without a reason: {group:?}");
            explained.extend(sequence(&group["names"][language]).iter().map(|name| qualified(name, main_part)));
        }
        // `Headers.*` is every name below `Headers`.
        let is_of = |name: &str, explanation: &str| match explanation.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == explanation,
        };
        let listed = listed(&surface, language);
        for name in &listed {
            let count = explained.iter().filter(|explanation| is_of(name, explanation)).count();
            assert_eq!(count, 1, "concepts and reasons of {name} in {language}");
        }
        for explanation in &explained {
            assert!(listed.iter().any(|name| is_of(name, explanation)), "{language} has no {explanation}");
        }
    }
}
