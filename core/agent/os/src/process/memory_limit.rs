//! The memory limit of the process's control groups. Reads files; any thread may call it.

use super::cgroups::{group_directories, MOUNT};
use std::fs;
use std::path::Path;

/// Values of version 1 at or above this mean no limit: its maximum is the largest page-aligned signed word.
const UNLIMITED: u64 = 1 << 60;

/// The tightest memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Limit, bytes.
    pub bytes: u64,
    /// Memory that the group may still use, bytes. Its file cache that was not used recently counts as free, since the
    /// kernel reclaims it first.
    pub until_bytes: u64,
}

/// The smallest limit of the process's groups; `None` without one. Not cached: limits and groups change.
pub fn memory_limit() -> Option<MemoryLimit> {
    limit_of(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new(MOUNT))
}

fn limit_of(groups: &str, mount: &Path) -> Option<MemoryLimit> {
    let limits = group_directories(groups, mount, "memory").into_iter().filter_map(|group| of_group(&group));
    limits.min_by_key(|limit| (limit.bytes, limit.until_bytes))
}

fn of_group(group: &Path) -> Option<MemoryLimit> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let bytes = number("memory.max").or_else(|| number("memory.limit_in_bytes")).filter(|bytes| *bytes < UNLIMITED)?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
    let statistics = read("memory.stat").unwrap_or_default();
    let inactive = |name: &str| statistics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    // The name with `total_` has the group's children too, as in version 2.
    let inactive = inactive("total_inactive_file ").or_else(|| inactive("inactive_file ")).unwrap_or(0);
    Some(MemoryLimit { bytes, until_bytes: bytes.saturating_sub(used.saturating_sub(inactive)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_smallest_of_the_groups_and_their_ancestors_in_either_version() {
        let mount = std::env::temp_dir().join(format!("spanprof-memory-limit-{}", std::process::id()));
        let files = [
            ("memory.max", "max\n"),
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "700\n"),
            ("a/memory.stat", "anon 600\nactive_file 40\ninactive_file 60\n"),
            ("a/b/memory.max", "2000\n"),
            ("a/b/memory.current", "600\n"),
            ("c/memory.max", "max\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/d/memory.limit_in_bytes", "500\n"),
            ("memory/d/memory.usage_in_bytes", "490\n"),
            ("memory/d/memory.stat", "inactive_file 1\ntotal_inactive_file 20\n"),
            ("memory/e/memory.limit_in_bytes", "500\n"),
            ("memory/e/memory.usage_in_bytes", "600\n"),
        ];
        for (name, text) in files {
            let file = mount.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let limit = |groups: &str| limit_of(groups, &mount).map(|limit| (limit.bytes, limit.until_bytes));
        assert_eq!(limit("0::/a/b\n"), Some((1000, 360)));
        assert_eq!(limit("0::/c\n"), None);
        assert_eq!(limit("0::/of/the/host\n"), None);
        assert_eq!(limit("4:memory:/d\n0::/a\n"), Some((500, 30)));
        assert_eq!(limit("4:memory:/e\n"), Some((500, 0)));
        assert_eq!(limit("4:cpu:/d\nnonsense\n"), None);
        fs::remove_dir_all(mount).unwrap();
    }
}
