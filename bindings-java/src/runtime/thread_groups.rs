//! What the VM's own threads work at, by their names: the kernel keeps 15 letters of each (`hotspot/share/gc`,
//! `hotspot/share/compiler`, JDK 17 to 25). Their stacks end in one frame for each group, however many threads it has.

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

/// The group of a thread of the VM; `None` for any other thread.
pub fn of(name: &str) -> Option<&'static str> {
    let is_of = |begins: &&[&str]| begins.iter().any(|begin| name.starts_with(begin));
    GROUPS.iter().find(|(_, begins)| is_of(begins)).map(|(group, _)| *group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_and_collectors_are_groups_and_other_threads_are_none() {
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
