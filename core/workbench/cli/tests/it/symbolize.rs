//! Names of native code by the symbols of other files: those of this program.

use std::path::Path;

use spanprof_os::{native_object, ObjectFile, SymbolFile};
use spanprof_profile::encode::pprof;
use spanprof_profile::encode::pprof::names;
use spanprof_profile::{Function, Line, Location, Mapping, ProfilesData, Value};

use crate::fixture::{encoded, spanprof, window, TestDirectory, TestSample};

#[inline(never)]
fn priced_natively(n: u64) -> u64 {
    std::hint::black_box(n) + 1
}

/// A sample of [`priced_natively`] as the profiler writes it if this program is stripped.
fn unnamed(build_id: &str) -> ProfilesData {
    let pc = priced_natively as *const () as u64;
    let object = native_object(pc, 0).expect("this program").object(pc);
    let file = ObjectFile::read(&object).expect("its file");
    let address = file.address(object.base, pc);
    let segment = file.code.iter().find(|segment| segment.addresses.contains(&address)).expect("its code");
    let mut data = window("shop", "cpu", &[TestSample(&["main", "price"], 10_000_000, &[], 0)]);
    let ProfilesData { dictionary, resources } = &mut data;
    let build_id = dictionary.attribute(names::BUILD_ID, Value::String(build_id), "");
    let [filename, name] = ["/opt/shop/libprice.so", "[libprice.so]"].map(|text| dictionary.string(text));
    let mapping = Mapping {
        memory_start: segment.addresses.start,
        memory_limit: segment.addresses.end,
        file_offset: segment.file_offset,
        filename,
        attributes: dictionary.attribute_set(&[build_id]),
    };
    let mapping = dictionary.mapping(mapping);
    let function = dictionary.function(Function { name, filename, ..Function::default() });
    let lines = [Line { function, ..Line::default() }];
    let leaf = dictionary.location(Location { mapping, address, lines: &lines, ..Location::default() });
    let stack = &mut resources[0].profiles[0].samples[0].stack;
    let locations: Vec<_> = [leaf].into_iter().chain(dictionary.get_stack(*stack).to_vec()).collect();
    *stack = dictionary.stack(&locations);
    data
}

#[test]
fn native_code_of_a_stripped_library_has_the_names_of_its_debug_file() {
    let directory = TestDirectory::new();
    let program = std::env::current_exe().unwrap();
    let build_id = SymbolFile::build_id_of(&program).expect("the linker of Rust on Linux writes one");
    let data = unnamed(&build_id);
    let [by_build_id, by_file] = ["debug", "build"].map(|name| directory.path().join(name));
    let debug_file = SymbolFile::debug_file(&by_build_id, &build_id).unwrap();
    for (parent, link) in [
        (debug_file.parent().unwrap(), debug_file.clone()),
        (&*by_file.join("release"), by_file.join("release/libprice.so")),
    ] {
        std::fs::create_dir_all(parent).unwrap();
        std::os::unix::fs::symlink(&program, link).unwrap();
    }
    let files = [directory.file("cpu.pb.gz", &pprof::encode(&data)), directory.file("cpu.otlp.pb", &encoded(&data))];
    for (file, symbols) in files.iter().flat_map(|file| [(file, &by_build_id), (file, &by_file)]) {
        let named = file.replace("cpu", "named");
        let symbolized = spanprof(&["symbolize", file, "--debug-dir", symbols.to_str().unwrap(), "-o", &named]);
        assert_eq!(symbolized.code, 0, "{}", symbolized.stderr);
        assert!(symbolized.stderr.contains("named 1 of 1 addresses"), "{}", symbolized.stderr);
        let folded = spanprof(&["convert", &named, "--to", "folded"]).stdout;
        assert_eq!(folded, "main;price;it::symbolize::priced_natively 10000000\n", "{file}");
        let again = spanprof(&["symbolize", &named, "--debug-dir", symbols.to_str().unwrap(), "-o", &named]);
        assert_eq!(again.code, 1);
        assert!(again.stderr.contains("has no native code without a name"), "{}", again.stderr);
    }
}

#[test]
fn what_is_missing_is_named() {
    let directory = TestDirectory::new();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let profile = directory.file("cpu.pb.gz", &pprof::encode(&unnamed("c0ffee")));
    let without = directory.file("old.pb.gz", &pprof::encode(&unnamed("")));
    let [empty, missing, output] = ["empty", "missing", "named.pb.gz"].map(path);
    std::fs::create_dir(&empty).unwrap();
    for (source, symbols, output, code, expected) in [
        (&profile, &empty, &output, 1, "no file with build id c0ffee for /opt/shop/libprice.so"),
        (&profile, &empty, &output, 1, "named 0 of 1 addresses"),
        (&profile, &missing, &output, 1, "cannot list"),
        (&without, &empty, &output, 1, "1 addresses in"),
        (&profile, &empty, &path("flame.html"), 2, "flamegraph has no addresses"),
    ] {
        let refused = spanprof(&["symbolize", source, "--debug-dir", symbols, "-o", output]);
        assert!(refused.code == code && refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
        assert!(!Path::new(output).exists());
    }
}
