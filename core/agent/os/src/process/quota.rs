//! The CPU quota of the process's control groups, the CPU time used in the group, and that of the machine. Reads files; any
//! thread may call it.

use super::cgroups::{group_directories, MOUNT};
use std::fs;
use std::path::{Path, PathBuf};

/// The control group with the tightest CPU quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuGroup {
    /// Quota in processors.
    pub quota: f64,
    /// CPU time of all its processes since its creation; `None` where the hierarchy does not count it.
    pub used_ns: Option<u64>,
}

/// The quota in processors; `None` without a limit. Not cached: a process can move to another group.
pub fn cpu_quota() -> Option<f64> {
    cpu_group().map(|group| group.quota)
}

/// The group with the quota of [`cpu_quota`].
pub fn cpu_group() -> Option<CpuGroup> {
    group_of(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new(MOUNT))
}

/// CPU time of the machine since its boot, used and in all, in ticks of all processors; `None` where the kernel does not show it.
pub fn machine_cpu_ticks() -> Option<[u64; 2]> {
    parse_machine(&fs::read_to_string("/proc/stat").ok()?)
}

/// The line `cpu`: user, nice, system, idle, iowait, irq, softirq and steal. The rest is part of user and nice (proc(5)).
fn parse_machine(text: &str) -> Option<[u64; 2]> {
    let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(|word| word.parse().ok());
    let ticks: Vec<u64> = numbers.take(8).collect::<Option<_>>()?;
    let all: u64 = ticks.iter().sum();
    Some([all - ticks.get(3)? - ticks.get(4)?, all])
}

/// Number of processors in the process's affinity, at least 1. Reads /proc, since a seccomp filter may not allow the call.
pub fn allowed_processors() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or(1, |list| length_of(list.trim()).max(1))
}

/// Number of members of a list such as `0-3,8`.
fn length_of(list: &str) -> u32 {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    });
    ranges.sum()
}

/// The tightest limit of the groups in `/proc/self/cgroup` and their ancestors.
fn group_of(groups: &str, mount: &Path) -> Option<CpuGroup> {
    let limited = group_directories(groups, mount, "cpu").into_iter().filter_map(|group| Some((limit(&group)?, group)));
    let (quota, group) = limited.min_by(|left, right| left.0.total_cmp(&right.0))?;
    Some(CpuGroup { quota, used_ns: used_ns(&group, groups, mount) })
}

/// The limit of one group: `cpu.max` of version 2, `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1.
fn limit(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let text = read("cpu.max").or_else(|| Some(read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?))?;
    let mut words = text.split_whitespace().map(str::parse::<f64>);
    let (quota_us, period_us) = (words.next()?.ok()?, words.next()?.ok()?);
    (quota_us > 0.0 && period_us > 0.0).then_some(quota_us / period_us)
}

/// The CPU time of one group: `cpu.stat` of version 2; `cpuacct.usage` of version 1, in the same directory or in that of the
/// separate hierarchy.
fn used_ns(group: &Path, groups: &str, mount: &Path) -> Option<u64> {
    let statistics = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
    let usage_us = statistics.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok());
    let in_hierarchy = |path: &Path| path.strip_prefix(mount).ok().map(|path| path.iter().skip(1).collect::<PathBuf>());
    let separate = || {
        let counted = group_directories(groups, mount, "cpuacct").into_iter();
        counted.filter(|counted| in_hierarchy(counted) == in_hierarchy(group)).find_map(|counted| number(&counted))
    };
    usage_us.map(|usage_us| usage_us * 1000).or_else(|| number(group)).or_else(separate)
}

fn number(group: &Path) -> Option<u64> {
    fs::read_to_string(group.join("cpuacct.usage")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::listing::thread_id;
    use std::path::PathBuf;

    fn mount(files: &[(&str, &str)]) -> PathBuf {
        let mount = std::env::temp_dir().join(format!("spanprof-quota-{}-{}", std::process::id(), thread_id()));
        for (name, text) in files {
            let file = mount.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        mount
    }

    #[test]
    fn the_time_of_the_machine_is_used_or_idle() {
        let text = "cpu  10 20 30 400 50 6 7 8 5 5\ncpu0 1 2 3 4 5 6 7 8 9 9\n";
        assert_eq!(parse_machine(text), Some([81, 531]));
        assert_eq!([parse_machine("cpu  1 2 3\n"), parse_machine("cpu0 1 2 3 4 5\n"), parse_machine("")], [None; 3]);
    }

    #[test]
    fn the_quota_is_the_tightest_limit_of_either_cgroup_version() {
        let mount = mount(&[
            ("cpu.max", "max 100000\n"),
            ("a/cpu.max", "20000 100000\n"),
            ("a/b/cpu.max", "50000 100000\n"),
            ("c/cpu.max", "max 100000\n"),
            ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/d/cpu.cfs_quota_us", "10000\n"),
            ("cpu,cpuacct/d/cpu.cfs_period_us", "100000\n"),
        ]);
        let quota = |groups: &str| group_of(groups, &mount).map(|group| group.quota);
        assert_eq!(quota("0::/a/b\n"), Some(0.2));
        assert_eq!(quota("0::/c\n"), None);
        assert_eq!(quota("0::/of/the/host\n"), None);
        assert_eq!(quota("7:memory:/a\n4:cpu,cpuacct:/d\n0::/\n"), Some(0.1));
        assert_eq!(quota("4:cpu,cpuacct:/\n"), None);
        assert_eq!(quota("nonsense\n"), None);
        fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn the_cpu_time_is_that_of_the_group_with_the_quota_in_either_cgroup_version() {
        let mount = mount(&[
            ("a/cpu.max", "20000 100000\n"),
            ("a/cpu.stat", "usage_usec 7\nuser_usec 5\n"),
            ("cpu,cpuacct/b/cpu.cfs_quota_us", "10000\n"),
            ("cpu,cpuacct/b/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/b/cpuacct.usage", "8000\n"),
            ("cpu/c/cpu.cfs_quota_us", "10000\n"),
            ("cpu/c/cpu.cfs_period_us", "100000\n"),
            ("cpuacct/c/cpuacct.usage", "9000\n"),
            ("cpuacct/cpuacct.usage", "1\n"),
        ]);
        let used_ns = |groups: &str| group_of(groups, &mount).and_then(|group| group.used_ns);
        assert_eq!(used_ns("0::/a\n"), Some(7000));
        assert_eq!(used_ns("4:cpu,cpuacct:/b\n"), Some(8000));
        assert_eq!(used_ns("2:cpuacct:/c\n1:cpu:/c\n"), Some(9000));
        assert_eq!(used_ns("2:cpuacct:/\n1:cpu:/c\n"), None, "another group");
        fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn a_list_of_processors_has_single_ones_and_ranges() {
        assert_eq!([length_of("0-3,8"), length_of("5"), length_of(""), length_of("3-1")], [5, 1, 0, 0]);
        assert!(allowed_processors() >= 1);
    }
}
