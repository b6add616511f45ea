//! Differences between the measured versions of Node.js, in one table. The start does not depend on it: symbols are looked up,
//! addresses are searched for, and the self-test decides. The table gives the expected result, so that a test can distinguish a
//! changed Node.js from a defect of the profiler. A newer version is expected to be like the last row. Used by `stats`.

/// How the context id reaches a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelAccess {
    /// The handler reads the AsyncLocalStorage in V8's embedder data.
    ReadByHandler,
    /// As `ReadByHandler` with `--experimental-async-context-frame`; otherwise as `SetByHook`.
    ReadByHandlerWithFlag,
    /// An `async_hooks` hook sets the id at each switch.
    SetByHook,
}

/// One major version of Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersion {
    pub major: u32,
    pub v8: &'static str,
    pub labels: LabelAccess,
    /// Isolates run a remapped copy of the embedded builtins.
    pub remaps_builtins: bool,
    /// Code events give builtins by the addresses of that copy, not of the program's.
    pub logs_remapped: bool,
    /// `GlobalizeReference` takes the object, not the address of its slot.
    pub globalizes_object: bool,
}

const fn version(
    major: u32,
    v8: &'static str,
    labels: LabelAccess,
    remapped: (bool, bool),
    globalizes_object: bool,
) -> NodeVersion {
    NodeVersion { major, v8, labels, remaps_builtins: remapped.0, logs_remapped: remapped.1, globalizes_object }
}

/// The measured versions, oldest first. Offsets in the isolate are found by search and not listed.
pub const MEASURED: [NodeVersion; 5] = [
    version(18, "10.2", LabelAccess::SetByHook, (false, false), false),
    version(20, "11.3", LabelAccess::SetByHook, (true, false), false),
    version(22, "12.4", LabelAccess::ReadByHandlerWithFlag, (true, true), true),
    version(24, "13.6", LabelAccess::ReadByHandler, (true, true), true),
    version(26, "14.6", LabelAccess::ReadByHandler, (true, true), true),
];

/// The row of a major version: its own, the last one before it, or the first.
pub fn of(major: u32) -> NodeVersion {
    *MEASURED.iter().rev().find(|version| version.major <= major).unwrap_or(&MEASURED[0])
}

/// Properties observed in this process.
#[derive(Clone, Copy, Debug)]
pub struct ObservedNode {
    pub remaps_builtins: bool,
    pub logs_remapped: bool,
    pub globalizes_object: bool,
}

impl NodeVersion {
    /// Names of the properties that differ in this process. Command-line flags of Node.js may be the reason.
    pub fn differing(&self, observed: ObservedNode) -> Vec<&'static str> {
        let pairs = [
            ("remaps_builtins", self.remaps_builtins, observed.remaps_builtins),
            ("logs_remapped", self.logs_remapped, observed.logs_remapped),
            ("globalizes_object", self.globalizes_object, observed.globalizes_object),
        ];
        pairs.into_iter().filter(|(_, expected, actual)| expected != actual).map(|(name, _, _)| name).collect()
    }

    /// The row as text, for `stats()`.
    pub fn describe(&self) -> String {
        let labels = match self.labels {
            LabelAccess::ReadByHandler => "labels read by the handler",
            LabelAccess::ReadByHandlerWithFlag => "labels set by a hook, read by the handler with a flag",
            LabelAccess::SetByHook => "labels set by a hook",
        };
        format!("as Node.js {} with V8 {}: {labels}", self.major, self.v8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmeasured_version_is_expected_to_be_like_the_one_before_it() {
        assert_eq!([16, 18, 19, 21, 25, 40].map(|major| of(major).major), [18, 18, 18, 20, 24, 26]);
        let observed = ObservedNode { remaps_builtins: true, logs_remapped: false, globalizes_object: false };
        assert!(of(20).differing(observed).is_empty());
        assert_eq!(of(24).differing(observed), ["logs_remapped", "globalizes_object"]);
        assert!(MEASURED.windows(2).all(|pair| pair[0].major < pair[1].major));
    }
}
