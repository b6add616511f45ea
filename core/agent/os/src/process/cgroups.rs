//! The control groups of this process and their ancestors, in both versions of cgroups.

use std::path::{Path, PathBuf};

/// Where the hierarchies are mounted.
pub(crate) const MOUNT: &str = "/sys/fs/cgroup";

/// The directories of the groups in the text of `/proc/self/cgroup`, and of their ancestors: of version 2, and of the
/// version 1 hierarchy of `controller`. In a container the path may be the host's and not exist; the mount itself is then
/// the container's group.
pub(crate) fn group_directories(groups: &str, mount: &Path, controller: &str) -> Vec<PathBuf> {
    let roots = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let root = match controllers {
            "" => mount.to_owned(),
            _ if controllers.split(',').any(|name| name == controller) => mount.join(controllers),
            _ => return None,
        };
        Some((root.join(path.trim_start_matches('/')), root))
    });
    roots
        .flat_map(|(group, root)| {
            let ancestors = group.ancestors().take_while(|group| group.starts_with(&root));
            ancestors.map(Path::to_owned).collect::<Vec<_>>()
        })
        .collect()
}
