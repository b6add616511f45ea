//! Short forms of source files for a terminal: relative to the directory of the program's own files, or to the root of a
//! library.

use unicode_width::UnicodeWidthStr;

/// The beginning of a shortened path, or the middle of a shortened name.
pub(super) const ELLIPSIS: &str = "…";
/// Directories of libraries, after which a path begins with the library's name.
const LIBRARY_ROOTS: [&str; 5] =
    ["/site-packages/", "/dist-packages/", "/node_modules/", "/pkg/mod/", "/registry/src/"];
/// Directories of standard libraries, whose last component stays.
const STANDARD_LIBRARIES: [&str; 3] = ["/lib/python3", "/lib64/python3", "/rustc/"];

/// The deepest directory of all paths, with a slash at its end; "" if there is none below the root.
pub(super) fn common_directory<'a>(paths: impl Iterator<Item = &'a str>) -> String {
    let mut common: Option<&str> = None;
    for path in paths.filter(|path| path.starts_with('/')) {
        let directory = path.rfind('/').map_or("", |slash| &path[..=slash]);
        common = Some(common.map_or(directory, |common| shared_directory(common, directory)));
    }
    common.filter(|directory| directory.len() > 1).unwrap_or_default().to_owned()
}

fn shared_directory<'a>(left: &'a str, right: &str) -> &'a str {
    let same = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    left.as_bytes()[..same].iter().rposition(|byte| *byte == b'/').map_or("", |slash| &left[..=slash])
}

/// The path from the library's name on, or relative to `directory`.
pub(super) fn shortened<'a>(path: &'a str, directory: &str) -> &'a str {
    let root_of = |root: &'static str| path.rfind(root).map(|start| (start + root.len(), root));
    if let Some((start, root)) = LIBRARY_ROOTS.into_iter().filter_map(root_of).max() {
        // The sources of crates.io are below the name of an index.
        let is_index = root == "/registry/src/";
        return if is_index { after_first_component(&path[start..]) } else { &path[start..] };
    }
    for root in STANDARD_LIBRARIES {
        if let Some(start) = path.find(root) {
            let start = start + root.rfind('/').map_or(0, |slash| slash + 1);
            // Rust's is below the hash of a commit.
            return if root == "/rustc/" { after_first_component(&path[start..]) } else { &path[start..] };
        }
    }
    path.strip_prefix(directory).filter(|rest| !rest.is_empty()).unwrap_or(path)
}

fn after_first_component(path: &str) -> &str {
    path.split_once('/').map_or(path, |(_, rest)| rest)
}

/// The last components of a path in at most `columns`; the whole last component if it is longer.
pub(super) fn last_components(path: &str, columns: usize) -> String {
    if path.width() <= columns {
        return path.to_owned();
    }
    let mut starts = path.match_indices('/').map(|(start, _)| &path[start..]);
    let fitting = starts.clone().find(|rest| rest.width() < columns);
    fitting.or_else(|| starts.next_back()).map_or_else(|| path.to_owned(), |rest| format!("{ELLIPSIS}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_libraries_begin_with_the_name_of_the_library() {
        for (path, short) in [
            ("/usr/lib/python3.11/queue.py", "python3.11/queue.py"),
            ("/venv/lib/python3.11/site-packages/requests/api.py", "requests/api.py"),
            ("/app/node_modules/a/node_modules/b/index.js", "b/index.js"),
            ("/rustc/4d91de4e48/library/alloc/src/vec.rs", "library/alloc/src/vec.rs"),
            ("/srv/.cargo/registry/src/index.crates.io-6f17/h2-0.4/src/a.rs", "h2-0.4/src/a.rs"),
            ("/srv/go/pkg/mod/github.com/a/b@v1/c.go", "github.com/a/b@v1/c.go"),
            ("/srv/shop/cart.py", "cart.py"),
            ("/opt/x.py", "/opt/x.py"),
            ("Shop.java", "Shop.java"),
        ] {
            assert_eq!(shortened(path, "/srv/shop/"), short);
        }
    }

    #[test]
    fn the_common_directory_ends_at_a_component() {
        let common = |paths: &[&str]| common_directory(paths.iter().copied());
        assert_eq!(common(&["/srv/shop/a.py", "/srv/shopping/b.py"]), "/srv/");
        assert_eq!(common(&["/srv/shop/a.py", "/srv/shop/cart/b.py", "app.py"]), "/srv/shop/");
        assert_eq!(common(&["/a.py", "/b.py"]), "");
        assert_eq!(common(&["/srv/ü/a.py", "/srv/ö/b.py"]), "/srv/");
        assert_eq!(common(&[]), "");
    }

    #[test]
    fn a_long_path_keeps_its_last_components() {
        assert_eq!(last_components("/srv/shop/cart/price.py:12", 26), "/srv/shop/cart/price.py:12");
        assert_eq!(last_components("/srv/shop/cart/price.py:12", 20), "…/cart/price.py:12");
        assert_eq!(last_components("/srv/shop/cart/price.py:12", 5), "…/price.py:12");
        assert_eq!(last_components("price.py:12", 5), "price.py:12");
    }
}
