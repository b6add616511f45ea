//! The page of the profile types, from the table of kinds and the defaults of the configuration.

use spanprof_profile::kinds;

/// Text below the table.
const NOTES: &str = "
`--type NAME` of the commands and the page of `serve` select a type. `profiles=all` turns on every kind that the runtime supports.

## Read a type
- **State or sum.** A state (`inuse_space`, `inuse_objects`, `threads`) describes one moment: of several windows of a process, the last one
  counts. All others are sums over the window.
- **Times of several threads add up.** Four threads that wait for one second are four seconds of `wall` and `off_cpu`.
- **`cpu` and `off_cpu` together are the time of the threads**: with both, `wall` is not needed. `delay`, `gc` and `event_loop_lag` are parts
  of this time and do not add to it.
- **Labels and spans** are on every type, except where the language says otherwise: `gc` in Node.js and Java, V8's objects in the heap.
- **`cpu` is counted, too**: the type `samples` in OTLP and pprof has the number of sampling periods.

## In each language
| kind | Python | Node.js | Java | Rust |
|---|---|---|---|---|
| `cpu` | yes | yes | yes | yes |
| `wall`, `off_cpu` | yes | yes | yes | yes |
| `threads` | threads and asyncio tasks | main thread and workers | platform threads, mounted virtual ones | yes |
| `heap`, `allocs` | [yes](python.md#heap) | [yes](node.md#heap) | [yes](java.md#memory) | [with an allocator](rust.md#heap) |
| `gc` | [yes](python.md#garbage-collection) | [yes](node.md#pauses-for-garbage-collection) | [yes](java.md#garbage-collection) | |
| `lock` | [yes](python.md#locks) | | [yes](java.md#locks) | [of `spanprof::sync`](rust.md#locks) |
| `event_loop_lag` | | [yes](node.md#blocks-of-the-event-loop) | | |
| `requests` | [reported ends](../guides/tail-retention.md#the-end-of-a-request) | yes | yes | span processor |

The names of the types in Pyroscope's own protocol are in [destinations](../guides/destinations.md#pyroscope-by-its-own-protocol).
";

/// The text of docs/reference/profile-types.md.
pub fn page() -> String {
    let defaults = spanprof::Config::default().entries();
    let is_on = |key: &str| defaults.iter().any(|(name, value, _)| *name == key && value == "true");
    let mut page = "# Profile types\n\nA kind of profiles is turned on by one key and has one or two types, which are measured together. Each kind is \
         a file of its own, such as `cpu-17.pb.gz`.\n\n\
         | kind | type | unit | key | default | value | meaning |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for kind in kinds::ALL {
        let (key, default) = match kind.key {
            Some(key) => (format!("`{key}`"), if is_on(key) { "on" } else { "off" }),
            None if *kind == kinds::REQUESTS => ("a middleware or a span processor".to_owned(), "on"),
            None => ("`event_loop_block`".to_owned(), "on"),
        };
        let value = if kind.is_gauge { "state" } else { "sum" };
        for of_kind in kind.types {
            page += &format!(
                "| `{}` | `{}` | {} | {key} | {default} | {value} | {} |\n",
                kind.name, of_kind.name, of_kind.unit, of_kind.doc
            );
        }
    }
    page + NOTES
}
