//! Groups of the VM's internal threads by name; the kernel stores 15 characters of each (`hotspot/share/gc`,
//! `hotspot/share/compiler`, JDK 17 to 25). Their stacks end in one frame per group, for any number of threads.

const GROUPS: [(&str, &[&str]); 2] = [
    ("JIT compiler", &["C1 CompilerThre", "C2 CompilerThre", "JVMCI CompilerT", "JVMCI-native Co"]),
    (
        "GC",
        &[
            "GC Thread#",
            "ParGC Thread#",
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
        assert_eq!(["VM Thread", "main", "GCounter"].map(of), [None; 3]);
    }
}
