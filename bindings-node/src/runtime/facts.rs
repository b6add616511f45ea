//! What differs between the versions of Node that were measured, in one table. Nothing here is believed at start: symbols
//! are looked up, addresses are searched for, and the self-test judges; the table says what that comes to, so that a test
//! can tell a Node that changed from one that we broke. A newer Node is expected to be as the last row. Asked by `stats`.

/// How a sample gets its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// The handler reads the storage in V8's continuation data.
    Read,
    /// It does where Node runs with `--experimental-async-context-frame`; else a hook tells.
    ReadWithFlag,
    /// An `async_hooks` hook tells at each switch.
    Told,
}

/// One major version of Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub major: u32,
    pub v8: &'static str,
    pub labels: Labels,
    /// What isolates run is a mapping of their own of the built-in code.
    pub maps_built_in: bool,
    /// And the code events tell of it by that mapping's addresses, not by the program's.
    pub tells_mapped: bool,
    /// `GlobalizeReference` takes the object, not the address of a slot with it.
    pub globalizes_word: bool,
}

const fn facts(major: u32, v8: &'static str, labels: Labels, mapped: (bool, bool), globalizes_word: bool) -> Facts {
    Facts { major, v8, labels, maps_built_in: mapped.0, tells_mapped: mapped.1, globalizes_word }
}

/// The measured ones, oldest first. The isolate's layout is not in it: offsets are found by looking.
pub const MEASURED: [Facts; 5] = [
    facts(18, "10.2", Labels::Told, (true, true), false),
    facts(20, "11.3", Labels::Told, (true, false), false),
    facts(22, "12.4", Labels::ReadWithFlag, (true, true), true),
    facts(24, "13.6", Labels::Read, (true, true), true),
    facts(26, "14.6", Labels::Read, (true, true), true),
];

/// The row of a major: its own, that of the last one before it, or the first.
pub fn of(major: u32) -> Facts {
    *MEASURED.iter().rev().find(|facts| facts.major <= major).unwrap_or(&MEASURED[0])
}

/// What this process turned out to be.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub maps_built_in: bool,
    pub tells_mapped: bool,
    pub globalizes_word: bool,
}

impl Facts {
    /// Names of the facts that are otherwise in this process; with flags of its own a Node may differ from its row.
    pub fn differing(&self, found: Found) -> Vec<&'static str> {
        let pairs = [
            ("maps_built_in", self.maps_built_in, found.maps_built_in),
            ("tells_mapped", self.tells_mapped, found.tells_mapped),
            ("globalizes_word", self.globalizes_word, found.globalizes_word),
        ];
        pairs.into_iter().filter(|(_, expected, is)| expected != is).map(|(name, _, _)| name).collect()
    }

    /// In a few words, for `stats()`.
    pub fn say(&self) -> String {
        let labels = match self.labels {
            Labels::Read => "labels read",
            Labels::ReadWithFlag => "labels told, read with a flag",
            Labels::Told => "labels told",
        };
        format!("as Node.js {} with V8 {}: {labels}", self.major, self.v8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_was_not_measured_is_taken_for_the_one_before_it() {
        assert_eq!([16, 18, 19, 21, 25, 40].map(|major| of(major).major), [18, 18, 18, 20, 24, 26]);
        let found = Found { maps_built_in: true, tells_mapped: false, globalizes_word: false };
        assert!(of(20).differing(found).is_empty());
        assert_eq!(of(24).differing(found), ["tells_mapped", "globalizes_word"]);
        assert!(MEASURED.windows(2).all(|pair| pair[0].major < pair[1].major));
    }
}
