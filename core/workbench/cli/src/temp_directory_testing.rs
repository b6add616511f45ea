//! A temporary directory of one unit test, removed on drop.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct TempDirectory(PathBuf);

impl TempDirectory {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("spanprof-unit-{}-{number}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch directory");
        TempDirectory(path.canonicalize().expect("a scratch directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
