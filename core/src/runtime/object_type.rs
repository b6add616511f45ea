//! The type of an allocated object, where the functions of the standard library between the program and its allocator name it:
//! `Vec<u64>` for `grow_one<u64, alloc::alloc::Global>` in `alloc::raw_vec`. Pure. The file of a function tells the container,
//! and its type arguments the contents, in one of these forms:
//!
//! | debug information, mangling | name |
//! |---|---|
//! | line tables | `grow_one<u64, alloc::alloc::Global>` |
//! | full, legacy | `alloc::raw_vec::RawVec<T,A>::grow_one<u64, alloc::alloc::Global>` (`debug_info::functions`) |
//! | full, v0 | `<alloc::raw_vec::RawVec<u64>>::grow_one` |
//! | none, or a function of a trait | no type arguments that are read |
//!
//! The optimizer merges equal functions: that of `Vec<f64>` may be named `grow_one<u64>`. Its callers up to the program are mostly
//! inlined there, and have the right type. So the outermost function of a container counts.
//!
//! Sources: `library/alloc/src` and `library/std/src/collections/hash` of Rust 1.88 to 1.95, hashbrown 0.15 and 0.16.

use spanprof_aggregate::runtime::Frame;

const RAW_VEC: &str = "/alloc/src/raw_vec";
const RAW_TABLE: &str = "/hashbrown-";

/// What the standard library puts into a `Box`, and the container that owns it.
const NODES: [(&str, &str); 6] = [
    ("ArcInner<", "Arc<"),
    ("RcInner<", "Rc<"),
    ("RcBox<", "Rc<"),
    ("LeafNode<", "BTreeMap<"),
    ("InternalNode<", "BTreeMap<"),
    ("Node<", "LinkedList<"),
];

/// Type parameters with their default.
const DEFAULTS: [&str; 2] = [", alloc::alloc::Global", ", hashbrown::alloc::inner::Global"];

/// The type that the functions between the program and its allocator name, leaf first.
pub fn named_by(functions: &[Frame]) -> Option<String> {
    functions.iter().enumerate().find_map(|(at, frame)| {
        let is_in = |file| frame.file.contains(file);
        let pointers = [("/alloc/src/boxed.rs", "Box"), ("/alloc/src/sync.rs", "Arc"), ("/alloc/src/rc.rs", "Rc")];
        if is_in(RAW_VEC) {
            vec_type(&functions[at..])
        } else if is_in(RAW_TABLE) && is_in("/src/raw") {
            table_type(&functions[at..])
        } else {
            let (_, pointer) = pointers.into_iter().find(|(file, _)| is_in(file))?;
            pointer_type(pointer, frame)
        }
    })
}

/// Of a buffer: frames from its own function on.
fn vec_type(frames: &[Frame]) -> Option<String> {
    let in_any = |frame: &Frame, files: &[&str]| files.iter().any(|file| frame.file.contains(file));
    let contents_in = |directory| {
        let of_container = frames.iter().take_while(|frame| in_any(frame, &[RAW_VEC, directory]));
        // Its first argument is an iterator.
        let named = of_container.filter(|frame| !in_any(frame, &["/in_place_collect"]));
        named.filter_map(|frame| argument(frame, 0)).last()
    };
    let owner = frames.iter().find(|frame| !in_any(frame, &[RAW_VEC]));
    if owner.is_some_and(|frame| in_any(frame, &["/vec_deque/"])) {
        return Some(format!("VecDeque<{}>", contents_in("/vec_deque/")?));
    }
    let contents = contents_in("/alloc/src/vec/")?;
    let mut owners = frames.iter().filter(|frame| in_any(frame, &["/alloc/src/"]));
    let owner = owners.find(|frame| !in_any(frame, &[RAW_VEC, "/vec/", "/slice"]));
    Some(if owner.is_some_and(|frame| in_any(frame, &["/string.rs", "/str.rs"])) && contents == "u8" {
        "String".to_owned()
    } else {
        format!("Vec<{contents}>")
    })
}

/// Of a hash table: frames from its own function on.
fn table_type(frames: &[Frame]) -> Option<String> {
    let contents = argument(&frames[0], 0)?;
    let owner = frames.iter().find(|frame| !frame.file.contains(RAW_TABLE));
    let owned = owner.and_then(|frame| match frame.file.rsplit_once("/std/src/collections/hash/")?.1 {
        "set.rs" => Some(format!("HashSet<{}>", argument(frame, 0)?)),
        _ => Some(format!("HashMap<{}, {}>", argument(frame, 0)?, argument(frame, 1)?)),
    });
    Some(owned.unwrap_or_else(|| match contents.strip_prefix('(').and_then(|pair| pair.strip_suffix(')')) {
        Some(pair) => match pair.strip_suffix(", ()") {
            Some(key) => format!("HashSet<{key}>"),
            None => format!("HashMap<{pair}>"),
        },
        None => format!("HashTable<{contents}>"),
    }))
}

/// Of an object behind a pointer.
fn pointer_type(pointer: &str, frame: &Frame) -> Option<String> {
    let (function, _) = arguments(&frame.function)?;
    // Others call functions of the object.
    let allocates =
        ["new", "try_new", "allocate_for", "try_allocate_for"].iter().any(|start| function.starts_with(start));
    let contents = argument(frame, 0).filter(|_| allocates)?;
    let node = NODES.iter().find_map(|(node, owner)| Some(format!("{owner}{}", contents.strip_prefix(node)?)));
    let named = node.unwrap_or_else(|| format!("{pointer}<{contents}>"));
    Some(match named.strip_suffix(", SetValZST>") {
        Some(set) => set.replace("BTreeMap<", "BTreeSet<") + ">",
        None => named,
    })
}

/// A type argument of a function. Not the allocator, and no parameter, which is a name without a path.
fn argument(frame: &Frame, nth: usize) -> Option<String> {
    let (_, mut rest) = arguments(&frame.function)?;
    for _ in 0..nth {
        rest = rest[brackets_end(rest, &[','])? + 1..].trim_start();
    }
    let argument = &rest[..brackets_end(rest, &[',']).unwrap_or(rest.len())];
    let is_parameter = argument.starts_with(|letter: char| letter.is_ascii_uppercase() || letter == '_');
    let is_type = !is_parameter && !argument.ends_with("::Global") && argument != "std::alloc::System";
    is_type.then(|| without_modules(argument))
}

/// The name of a function, and its type arguments or those of its structure.
fn arguments(name: &str) -> Option<(&str, &str)> {
    if let Some(path) = name.strip_prefix('<') {
        // Of an inherent function.
        let end = brackets_end(path, &['>', ' ']).filter(|end| path[*end..].starts_with('>'))?;
        let (_, arguments) = path[..end].strip_suffix('>')?.split_once('<')?;
        return Some((path[end..].trim_start_matches(['>', ':']), arguments));
    }
    let text = name.strip_suffix('>')?;
    let mut depth = 0;
    let (start, _) = text.char_indices().rev().find(|(at, letter)| {
        match letter {
            '>' if text[..*at].ends_with('-') => {}
            '>' | ')' | ']' => depth += 1,
            '<' if depth == 0 => return true,
            '<' | '(' | '[' => depth -= 1,
            _ => {}
        }
        false
    })?;
    let function = text[..start].rsplit("::").next().filter(|function| !function.starts_with('{'))?;
    Some((function, &text[start + 1..]))
}

/// The position of the first of these letters that is in no brackets.
fn brackets_end(text: &str, letters: &[char]) -> Option<usize> {
    let (mut depth, mut before) = (0, ' ');
    text.find(|letter: char| {
        let is_arrow = std::mem::replace(&mut before, letter) == '-';
        let is_outside = depth == 0 && letters.contains(&letter);
        depth += match letter {
            '<' | '(' | '[' => 1,
            '>' if is_arrow => 0,
            '>' | ')' | ']' => -1,
            _ => 0,
        };
        is_outside
    })
}

/// A type as programs write it: types of the standard library without modules, parameters without defaults.
fn without_modules(name: &str) -> String {
    let name = DEFAULTS.iter().fold(name.to_owned(), |name, default| name.replace(default, ""));
    let is_path = |letter: char| letter.is_alphanumeric() || "_:#{}".contains(letter);
    let is_standard = |part: &&str| ["alloc::", "core::", "std::"].iter().any(|start| part.starts_with(start));
    let parts = name.split_inclusive(|letter| !is_path(letter));
    parts.map(|part| Some(part).filter(is_standard).and_then(|part| part.rsplit("::").next()).unwrap_or(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(functions: &[(&str, &str)]) -> Option<String> {
        let frame = |(function, file): &(&str, &str)| {
            let file = if file.starts_with("hashbrown-") {
                format!("/rust/deps/{file}")
            } else {
                format!("/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/{file}")
            };
            Frame { function: (*function).into(), file: file.into(), ..Frame::default() }
        };
        named_by(&functions.iter().map(frame).collect::<Vec<_>>())
    }

    const BUFFER: &str = "alloc/src/raw_vec/mod.rs";
    const BOX: &str = "alloc/src/boxed.rs";
    const ARC: &str = "alloc/src/sync.rs";
    const TABLE: &str = "hashbrown-0.16.0/src/raw.rs";

    #[test]
    fn the_file_of_a_function_tells_the_container_and_its_arguments_the_contents() {
        for (function, file, expected) in [
            ("grow_one<(alloc::string::String, usize), alloc::alloc::Global>", BUFFER, "Vec<(String, usize)>"),
            ("with_capacity_in<&std::path::Path, alloc::alloc::Global>", BUFFER, "Vec<&Path>"),
            ("<alloc::raw_vec::RawVec<std::backtrace::BacktraceSymbol>>::grow_one", BUFFER, "Vec<BacktraceSymbol>"),
            ("alloc::raw_vec::RawVec<T,A>::grow_one<fn(u8) -> u8, alloc::alloc::Global>", BUFFER, "Vec<fn(u8) -> u8>"),
            ("new<shop::Order>", BOX, "Box<shop::Order>"),
            ("alloc::boxed::Box<T>::new<shop::Order>", BOX, "Box<shop::Order>"),
            ("<alloc::boxed::Box<fn(&str) -> core::option::Option<u8>>>::new", BOX, "Box<fn(&str) -> Option<u8>>"),
            ("new_uninit<[(&str, alloc::string::String); 3]>", BOX, "Box<[(&str, String); 3]>"),
            ("new<alloc::sync::ArcInner<shop::Cart>>", BOX, "Arc<shop::Cart>"),
            ("<alloc::boxed::Box<alloc::rc::RcInner<shop::Cart>>>::new", BOX, "Rc<shop::Cart>"),
            ("allocate_for_layout<[u8], alloc::sync::{impl#28}::allocate_for_slice::{closure_env#0}<u8>>", ARC, "Arc<[u8]>"),
            (
                "try_new_uninit_in<alloc::collections::btree::node::InternalNode<i64, alloc::vec::Vec<u8, alloc::alloc::Global>>, alloc::alloc::Global>",
                BOX,
                "BTreeMap<i64, Vec<u8>>",
            ),
            (
                "new_uninit_in<alloc::collections::btree::node::LeafNode<&str, alloc::collections::btree::set_val::SetValZST>, alloc::alloc::Global>",
                BOX,
                "BTreeSet<&str>",
            ),
            (
                "reserve_rehash<(u32, shop::Cart), alloc::alloc::Global, hashbrown::map::make_hasher::{closure_env#0}<u32, shop::Cart, std::hash::random::RandomState>>",
                TABLE,
                "HashMap<u32, shop::Cart>",
            ),
            ("<hashbrown::raw::RawTable<((char, char), ())>>::reserve_rehash::<shop::hash>", TABLE, "HashSet<(char, char)>"),
            ("reserve_rehash<usize, hashbrown::alloc::inner::Global, indexmap::inner::get_hash>", TABLE, "HashTable<usize>"),
        ] {
            assert_eq!(named(&[(function, file)]).as_deref(), Some(expected), "{function}");
        }
    }

    #[test]
    fn functions_that_do_not_name_the_contents_have_no_type() {
        for (function, file) in [
            // Without debug information, and of a trait.
            ("<alloc::raw_vec::RawVec<shop::Order>>::grow_one", ""),
            ("alloc::raw_vec::RawVec<T,A>::grow_one", BUFFER),
            ("alloc::boxed::Box<T>::new", BOX),
            ("hashbrown::raw::RawTable<T,A>::reserve_rehash", TABLE),
            ("<alloc::raw_vec::RawVec<T,A> as core::ops::drop::Drop>::drop", BUFFER),
            // The allocator only.
            ("try_allocate_in<alloc::alloc::Global>", BUFFER),
            ("<alloc::raw_vec::RawVecInner>::grow_amortized", BUFFER),
            ("new_uninitialized<hashbrown::alloc::inner::Global>", TABLE),
            // Functions of the contents.
            ("call_once<(), shop::main::{closure_env#0}, alloc::alloc::Global>", BOX),
            ("<alloc::boxed::Box<shop::Order> as core::ops::function::FnOnce<()>>::call_once", BOX),
            ("{closure#0}<u8, alloc::alloc::Global>", BUFFER),
            ("drop_slow<shop::Cart, alloc::alloc::Global>", ARC),
        ] {
            assert_eq!(named(&[(function, file)]), None, "{function}");
        }
    }

    #[test]
    fn the_outermost_function_of_a_container_names_the_contents() {
        let grow = ("grow_one<u64, alloc::alloc::Global>", BUFFER);
        let push = |contents| format!("push<{contents}, alloc::alloc::Global>");
        assert_eq!(named(&[grow, (&push("f64"), "alloc/src/vec/mod.rs")]).as_deref(), Some("Vec<f64>"));
        assert_eq!(
            named(&[grow, (&push("f64"), "alloc/src/collections/vec_deque/mod.rs")]).as_deref(),
            Some("VecDeque<f64>")
        );
        let resize = ("reserve_rehash<(u64, u64), alloc::alloc::Global, shop::hash>", TABLE);
        let insert =
            ("insert<u64, u64, std::hash::random::RandomState, alloc::alloc::Global>", "hashbrown-0.16.0/src/map.rs");
        let of_map = ("insert<shop::Id, f64, std::hash::random::RandomState>", "std/src/collections/hash/map.rs");
        assert_eq!(named(&[resize, insert, of_map]).as_deref(), Some("HashMap<shop::Id, f64>"));
        let of_set = ("insert<(shop::Id, u64), std::hash::random::RandomState>", "std/src/collections/hash/set.rs");
        assert_eq!(named(&[resize, of_set]).as_deref(), Some("HashSet<(shop::Id, u64)>"));
    }

    #[test]
    fn a_buffer_has_the_type_of_the_container_that_owns_it() {
        let bytes = ("with_capacity_in<u8, alloc::alloc::Global>", BUFFER);
        let to_vec = ("to_vec<u8, alloc::alloc::Global>", "alloc/src/slice.rs");
        let clone = ("clone<alloc::string::String, alloc::alloc::Global>", "alloc/src/vec/mod.rs");
        assert_eq!(named(&[bytes, to_vec, clone]).as_deref(), Some("Vec<u8>"));
        for owner in [
            ("to_owned", "alloc/src/str.rs"),
            ("<alloc::string::String as core::clone::Clone>::clone", "alloc/src/string.rs"),
        ] {
            assert_eq!(named(&[bytes, to_vec, owner, clone]).as_deref(), Some("String"));
            assert_eq!(named(&[("grow_one<u16, alloc::alloc::Global>", BUFFER), owner]).as_deref(), Some("Vec<u16>"));
        }
        let deque = ("clone<alloc::vec::Vec<u8>, alloc::alloc::Global>", "alloc/src/collections/vec_deque/mod.rs");
        assert_eq!(named(&[bytes, to_vec, deque]).as_deref(), Some("Vec<u8>"));
    }
}
