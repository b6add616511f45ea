//! The limits of all decoders.

/// Limits of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Bytes after decompression.
    pub decompressed_bytes: usize,
    /// Bytes of memory for the decoded form, estimated from counts before anything is allocated.
    pub memory_bytes: usize,
    /// Entries of one table, or samples of one profile.
    pub table_entries: usize,
    /// Locations of one stack.
    pub stack_depth: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { decompressed_bytes: 48 << 20, memory_bytes: 192 << 20, table_entries: 1 << 20, stack_depth: 1 << 14 }
    }
}

impl DecodeLimits {
    /// For files that the user names: merged profiles of some million stacks. A decoder takes up to 4 GiB of memory.
    pub fn of_files() -> Self {
        Self { decompressed_bytes: 256 << 20, memory_bytes: 4 << 30, table_entries: 1 << 24, stack_depth: 1 << 14 }
    }
}
