//! Names that a compiler or a virtual machine numbers differently in each build or run. The comparison of two builds gives each
//! such family one name, with `*` in place of the number.
//!
//! Forms: HotSpot, JDK 8 to 25 (`InnerClassLambdaMetafactory`, `ProxyGenerator`, `MethodAccessorGenerator`, hidden classes of
//! JEP 371); javac's anonymous classes and lambda bodies; CGLIB and ByteBuddy; rustc's legacy mangling (`::h` and 16 hexadecimal
//! digits).

use std::sync::LazyLock;

use regex_lite::Regex;

static NUMBERS: LazyLock<Regex> = LazyLock::new(|| {
    let forms = [
        // `Foo$$Lambda/0x00007f0c`, `LambdaForm$MH/0x1c`, `Foo$$Lambda$14/1234`: hidden classes.
        r"/0x[0-9a-f]+\b",
        r"\$\$Lambda\$[0-9]+(?:/[0-9]+)?",
        // `Foo$$EnhancerBySpringCGLIB$$1a2b3c4d`, `Foo$ByteBuddy$aBcD1234`
        r"CGLIB\$\$[0-9a-f]{6,8}",
        r"ByteBuddy\$[0-9A-Za-z]{8}",
        // `GeneratedMethodAccessor12`, `$Proxy3`
        r"Generated(?:Method|Constructor|SerializationConstructor)Accessor[0-9]+",
        r"\$Proxy[0-9]+",
        // `Foo$1`, `lambda$main$0`
        r"\$[0-9]+",
        // `app::work::h0123456789abcdef`
        r"::h[0-9a-f]{16}$",
    ];
    Regex::new(&forms.join("|")).expect("a valid expression")
});

/// The name of the family: `Foo$1.run` and `Foo$2.run` are both `Foo$*.run`.
pub(super) fn fold(name: String) -> String {
    // Nearly all names are of no family.
    if !name.contains(['$', '/', ':']) && !name.contains("Generated") {
        return name;
    }
    let folded = NUMBERS.replace_all(&name, |found: &regex_lite::Captures<'_>| {
        let found = &found[0];
        let letters = [("/", "/*"), ("$$Lambda", "$$Lambda*"), ("CGLIB", "CGLIB$$*"), ("ByteBuddy", "ByteBuddy$*")];
        match letters.iter().find(|(start, _)| found.starts_with(start)) {
            Some((_, family)) => (*family).to_owned(),
            None if found.starts_with("::h") => String::new(),
            None => format!("{}*", found.trim_end_matches(|letter: char| letter.is_ascii_digit())),
        }
    });
    folded.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_of_one_family_are_equal() {
        for (one, other, family) in [
            ("a.Foo$$Lambda/0x00007f0c10.run", "a.Foo$$Lambda/0x1c.run", "a.Foo$$Lambda/*.run"),
            ("a.Foo$$Lambda$14/1234.run", "a.Foo$$Lambda$2.run", "a.Foo$$Lambda*.run"),
            ("LambdaForm$MH/0x1c.invoke", "LambdaForm$MH/0xff.invoke", "LambdaForm$MH/*.invoke"),
            (
                "S$$EnhancerBySpringCGLIB$$1a2b3c4d.f",
                "S$$EnhancerBySpringCGLIB$$ffffff.f",
                "S$$EnhancerBySpringCGLIB$$*.f",
            ),
            ("S$ByteBuddy$aBcD1234.f", "S$ByteBuddy$ZZZZZZZZ.f", "S$ByteBuddy$*.f"),
            ("GeneratedMethodAccessor1.invoke", "GeneratedMethodAccessor27.invoke", "GeneratedMethodAccessor*.invoke"),
            ("com.sun.proxy.$Proxy3.get", "com.sun.proxy.$Proxy11.get", "com.sun.proxy.$Proxy*.get"),
            ("Foo$1.run", "Foo$2.run", "Foo$*.run"),
            ("Foo.lambda$main$0", "Foo.lambda$main$3", "Foo.lambda$main$*"),
            ("app::work::h0123456789abcdef", "app::work::hfedcba9876543210", "app::work"),
        ] {
            assert_eq!([fold(one.to_owned()), fold(other.to_owned())], [family, family]);
        }
    }

    #[test]
    fn other_names_stay() {
        for name in ["main", "a.Foo$Inner.run", "std::hash::hasher", "app/0xdata", "$digest", "Outer$Inner2.f", "step2"]
        {
            assert_eq!(fold(name.to_owned()), name);
        }
    }
}
