//! Names of native functions as their authors wrote them.

/// Suffixes of GCC and LLVM for clones and parts of a function.
const CLONE_SUFFIXES: [&str; 6] = [".part.", ".constprop.", ".isra.", ".cold", ".lto_priv.", ".llvm."];

/// Demangles a C++ or Rust symbol, without parameters, hash and clone suffixes (`.part.0`, `.cold`). `None` when the symbol
/// is already a plain name.
pub fn demangle(symbol: &str) -> Option<String> {
    let end = CLONE_SUFFIXES.iter().filter_map(|suffix| symbol.find(suffix)).min().unwrap_or(symbol.len());
    let base = symbol.get(..end)?;
    if let Ok(rust) = rustc_demangle::try_demangle(base) {
        return Some(format!("{rust:#}"));
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let cpp = base.starts_with("_Z").then(|| cpp_demangle::Symbol::new(base).ok()).flatten();
    let name = cpp.and_then(|cpp| cpp.demangle_with_options(&options).ok());
    name.or_else(|| (base.len() < symbol.len() && !base.is_empty()).then(|| base.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_symbols_are_demangled_and_plain_names_are_unchanged() {
        let name = demangle("_ZN2v88internal10HeapObject11SizeFromMapENS0_3MapE");
        assert_eq!(name.as_deref(), Some("v8::internal::HeapObject::SizeFromMap"));
        assert_eq!(["epoll_wait", "_Z", "_ZN4"].map(demangle), [None, None, None]);
    }

    #[test]
    fn demangled_names_have_no_clone_suffix_and_rust_names_no_hash() {
        let part = demangle("_ZN8PhaseIFG9re_insertEj.part.0.cold");
        assert_eq!(part.as_deref(), Some("PhaseIFG::re_insert"));
        assert_eq!(demangle("qsort_r.constprop.0").as_deref(), Some("qsort_r"));
        assert_eq!(demangle("runtime.mallocgc"), None, "Go's names contain dots");
        let rust = demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE");
        assert_eq!(rust.as_deref(), Some("core::fmt::Formatter::pad"));
    }
}
