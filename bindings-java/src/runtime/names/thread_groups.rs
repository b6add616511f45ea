//! Groups of the VM's internal threads by name; the kernel stores 15 characters of each (`hotspot/share/gc`,
//! `hotspot/share/compiler`, JDK 8 to 25). Their stacks end in one frame per group, for any number of threads.

const GROUPS: [(&str, &[&str]); 2] = [
    ("JIT compiler", &["C1 CompilerThre", "C2 CompilerThre", "JVMCI CompilerT", "JVMCI-native Co"]),
    (
        "GC",
        &[
            "GC Thread#",
            "GC task thread#",
            "Gang worker#",
            "ParGC Thread#",
            "CMS ",
            "Concurrent Mark",
            "G1 Concurrent R",
            "G1 Main Concurr",
            "G1 Conc#",
            "G1 Main Marker",
            "G1 Refine#",
            "G1 Service",
            "G1 Young RemSet",
            "ZWorker",
            "ZDriver",
            "ZDirector",
            "ZStat",
            "ZUncommitter",
            "ZUnmapper",
            "Shenandoah",
        ],
    ),
];

/// The group of an internal thread of the VM; `None` for any other thread.
pub fn of(name: &str) -> Option<&'static str> {
    let is_of = |prefixes: &&[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    GROUPS.iter().find(|(_, prefixes)| is_of(prefixes)).map(|(group, _)| *group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_and_gc_threads_have_a_group_and_other_threads_have_none() {
        for name in ["C1 CompilerThre", "C2 CompilerThre"] {
            assert_eq!(of(name), Some("JIT compiler"), "{name}");
        }
        for name in ["GC Thread#11", "G1 Conc#0", "ZWorkerYoung#3", "ZDriverMajor", "Shenandoah GC T", "ParGC Thread#1"]
        {
            assert_eq!(of(name), Some("GC"), "{name}");
        }
        // Parallel, G1 and CMS of Java 8, CMS of 11.
        let old = [
            "GC task thread#",
            "Gang worker#0 (",
            "G1 Concurrent R",
            "G1 Main Concurr",
            "Concurrent Mark",
            "CMS Main Thread",
        ];
        for name in old {
            assert_eq!(of(name), Some("GC"), "{name}");
        }
        assert_eq!(["VM Thread", "main", "GCounter"].map(of), [None; 3]);
    }
}
