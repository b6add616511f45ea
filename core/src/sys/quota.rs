//! The CPU quota of the process's control groups. Reads files; any thread may call it.

use super::cgroups::{group_directories, MOUNT};
use std::fs;
use std::path::Path;

/// The quota in processors; `None` without a limit. Not cached: a process can move to another group.
pub fn cpu_quota() -> Option<f64> {
    quota_of(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new(MOUNT))
}

/// The tightest limit of the groups in `/proc/self/cgroup` and their ancestors.
fn quota_of(groups: &str, mount: &Path) -> Option<f64> {
    group_directories(groups, mount, "cpu").iter().filter_map(|group| limit(group)).min_by(f64::total_cmp)
}

/// The limit of one group: `cpu.max` of version 2, `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1.
fn limit(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let text = read("cpu.max").or_else(|| Some(read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?))?;
    let mut words = text.split_whitespace().map(str::parse::<f64>);
    let (quota_us, period_us) = (words.next()?.ok()?, words.next()?.ok()?);
    (quota_us > 0.0 && period_us > 0.0).then_some(quota_us / period_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn mount(files: &[(&str, &str)]) -> PathBuf {
        let mount =
            std::env::temp_dir().join(format!("spanprof-quota-{}-{}", std::process::id(), crate::sys::thread_id()));
        for (name, text) in files {
            let file = mount.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        mount
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
        let quota = |groups: &str| quota_of(groups, &mount);
        assert_eq!(quota("0::/a/b\n"), Some(0.2));
        assert_eq!(quota("0::/c\n"), None);
        assert_eq!(quota("0::/of/the/host\n"), None);
        assert_eq!(quota("7:memory:/a\n4:cpu,cpuacct:/d\n0::/\n"), Some(0.1));
        assert_eq!(quota("4:cpu,cpuacct:/\n"), None);
        assert_eq!(quota("nonsense\n"), None);
        fs::remove_dir_all(mount).unwrap();
    }
}
