//! The kinds of profiles, one row each: type names, units and everything that follows from the kind. Encoders, file names, pulls and
//! the command line read this table. A new kind is a row here, and its samples (`SampleKind` of `spanprof-signal`).

/// Name and unit of a type.
pub type TypeName = (&'static str, &'static str);

const NS: &str = "nanoseconds";

/// A kind of profiles: the types that are measured together.
#[derive(Debug, PartialEq, Eq)]
pub struct ProfileKind {
    /// Begins the names of its files: `allocs-17.pb.gz`.
    pub name: &'static str,
    /// The configuration key that turns it on; `None` where the language's runtime decides.
    pub key: Option<&'static str>,
    /// Its types, in the order of the columns of a file.
    pub types: &'static [KindType],
    /// Index of the type that is shown when nothing else is chosen.
    pub default_index: usize,
    /// If samples are counted too: the type of the count, which OTLP carries with [`Profile::exact_type`](crate::Profile).
    pub counted: Option<TypeName>,
    /// What the period of sampling is measured in. Pyroscope groups types by it; its dashboards call these groups `memory` and
    /// `mutex`.
    pub period_type: TypeName,
    /// Names of Pyroscope's push protocol; `None`: those of the kind.
    pub pyroscope: Option<PyroscopeNames>,
    /// Whether values are a state at one moment, which cannot be added up over time.
    pub is_gauge: bool,
}

/// One type of a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct KindType {
    /// Name, as in OTLP, pprof and `--type`.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: &'static str,
    /// Index of its value among the two values of a sample; that of the count is the other one.
    pub value: usize,
    /// What it measures; its description in the reference.
    pub doc: &'static str,
}

/// A type in the form of a profile of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeShape {
    /// The type of the profile's samples.
    pub sample_type: TypeName,
    /// Index of its value among the two values of a sample.
    pub value: usize,
    /// Type and index of the exact measurement, if samples are counted.
    pub exact: Option<(TypeName, usize)>,
}

/// Names that Pyroscope's dashboards use.
#[derive(Debug, PartialEq, Eq)]
pub struct PyroscopeNames {
    /// Name of the series.
    pub series: &'static str,
    /// Replaces the sample type.
    pub sample_type: Option<TypeName>,
    /// Replaces the period type.
    pub period_type: Option<TypeName>,
}

const fn value(value: usize, name: &'static str, unit: &'static str, doc: &'static str) -> KindType {
    KindType { name, unit, value, doc }
}

const fn pyroscope(series: &'static str, period_type: Option<TypeName>) -> Option<PyroscopeNames> {
    Some(PyroscopeNames { series, sample_type: None, period_type })
}

/// A kind of one type, which is not counted and is no gauge.
const fn plain(name: &'static str, key: Option<&'static str>, types: &'static [KindType]) -> ProfileKind {
    ProfileKind {
        name,
        key,
        types,
        default_index: 0,
        counted: None,
        period_type: (types[0].name, types[0].unit),
        pyroscope: None,
        is_gauge: false,
    }
}

/// CPU time.
pub static CPU: ProfileKind = ProfileKind {
    counted: Some(("samples", "count")),
    pyroscope: pyroscope("process_cpu", None),
    ..plain("cpu", Some("cpu"), &[value(1, "cpu", NS, "CPU time of each thread, in user and kernel mode.")])
};

/// Wall-clock time.
pub static WALL: ProfileKind =
    plain("wall", Some("wall"), &[value(0, "wall", NS, "Elapsed time of each thread, running or waiting.")]);

/// Objects in use.
pub static IN_USE: ProfileKind = ProfileKind {
    period_type: ("memory", "bytes"),
    pyroscope: pyroscope("memory", Some(("space", "bytes"))),
    is_gauge: true,
    ..plain(
        "heap",
        Some("heap"),
        &[
            value(
                0,
                "inuse_space",
                "bytes",
                "Bytes of the objects in use at the end of the window, by the stack that allocated them.",
            ),
            value(
                1,
                "inuse_objects",
                "count",
                "Objects in use at the end of the window, by the stack that allocated them.",
            ),
        ],
    )
};

/// Allocations.
pub static ALLOCATIONS: ProfileKind = ProfileKind {
    period_type: ("memory", "bytes"),
    pyroscope: pyroscope("memory", Some(("space", "bytes"))),
    ..plain(
        "allocs",
        Some("heap"),
        &[
            value(0, "alloc_space", "bytes", "Allocated bytes, also of objects that were freed again."),
            value(1, "alloc_objects", "count", "Allocated objects, also those that were freed again."),
        ],
    )
};

/// Waits for locks.
pub static LOCK: ProfileKind = ProfileKind {
    default_index: 1,
    period_type: ("mutex", "count"),
    pyroscope: pyroscope("mutex", Some(("contentions", "count"))),
    ..plain(
        "lock",
        Some("lock"),
        &[
            value(
                1,
                "contentions",
                "count",
                "Waits for locks that another thread or task held, by the stack of the waiter.",
            ),
            value(0, "delay", NS, "Time of waits for locks, by the stack of the waiter."),
        ],
    )
};

/// Time for which an event loop was blocked.
pub static EVENT_LOOP: ProfileKind = plain(
    "event_loop_lag",
    None,
    &[value(
        0,
        "event_loop_lag",
        NS,
        "Length of turns of the event loop beyond `event_loop_block`, by the stacks that ran meanwhile.",
    )],
);

/// Time off the CPU.
pub static OFF_CPU: ProfileKind = plain(
    "off_cpu",
    Some("off_cpu"),
    &[value(0, "off_cpu", NS, "Time in which a thread did not run; the leaf frame is the reason.")],
);

/// Pauses for garbage collection.
pub static GC: ProfileKind = plain("gc", Some("gc"), &[value(0, "gc", NS, "Pauses for garbage collection.")]);

/// Threads by their stacks at one moment.
pub static THREADS: ProfileKind = ProfileKind {
    pyroscope: Some(PyroscopeNames {
        series: "goroutine",
        sample_type: Some(("goroutine", "count")),
        period_type: Some(("goroutine", "count")),
    }),
    is_gauge: true,
    ..plain(
        "threads",
        Some("threads"),
        &[value(0, "threads", "count", "Live threads by their stacks at the end of the window.")],
    )
};

/// The type that counts requests that ended with an error.
pub const REQUEST_ERRORS: &str = "request_errors";

/// Ended requests, and those of them that ended with an error: reported by middlewares and span processors.
pub static REQUESTS: ProfileKind = plain(
    "requests",
    None,
    &[
        value(
            0,
            "requests",
            "count",
            "Requests whose end a middleware or a span processor reported, by endpoint and rounded duration.",
        ),
        value(1, REQUEST_ERRORS, "count", "Those of them that ended with an error."),
    ],
);

/// What requests awaited: calls to other services, by the name of the span. With several at a time, more than their duration.
pub static AWAITED: ProfileKind = plain(
    "awaited",
    None,
    &[value(
        0,
        "awaited",
        NS,
        "Durations of the client spans of slow, failed and sampled requests, by the name of the span.",
    )],
);

/// All kinds. Of several kinds, the first of these is shown by default.
pub static ALL: [&ProfileKind; 11] =
    [&CPU, &WALL, &IN_USE, &ALLOCATIONS, &LOCK, &EVENT_LOOP, &OFF_CPU, &GC, &THREADS, &REQUESTS, &AWAITED];

/// The kind of a type; `None` for types of other profilers.
pub fn of_type(type_name: &str) -> Option<&'static ProfileKind> {
    ALL.into_iter().find(|kind| kind.has(type_name))
}

impl ProfileKind {
    /// Whether one of its types has this name.
    pub fn has(&self, type_name: &str) -> bool {
        self.types.iter().any(|of_kind| of_kind.name == type_name)
    }

    /// Its types with the shape that OTLP gives them: the sample type, and the type of the exact value.
    pub fn shapes(&self) -> impl Iterator<Item = TypeShape> + '_ {
        self.types.iter().map(|of_kind| {
            let (name, value) = ((of_kind.name, of_kind.unit), of_kind.value);
            match self.counted {
                Some(count) => TypeShape { sample_type: count, value: 1 - value, exact: Some((name, value)) },
                None => TypeShape { sample_type: name, value, exact: None },
            }
        })
    }

    /// The name of the type that is shown when nothing else is chosen.
    pub fn default_type(&self) -> &'static str {
        self.types[self.default_index].name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kinds_and_types_are_unique_and_each_index_is_in_range() {
        let mut names: Vec<_> = ALL.iter().flat_map(|kind| kind.types).map(|of_kind| of_kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.iter().map(|kind| kind.types.len()).sum::<usize>());
        let mut files: Vec<_> = ALL.iter().map(|kind| kind.name).collect();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), ALL.len());
        assert!(ALL
            .iter()
            .all(|kind| kind.types.iter().all(|of_kind| of_kind.value < 2) && kind.has(kind.default_type())));
    }

    #[test]
    fn a_type_of_another_profiler_has_no_kind() {
        assert_eq!(of_type("inuse_objects"), Some(&IN_USE));
        assert_eq!(of_type("goroutine"), None);
    }
}
