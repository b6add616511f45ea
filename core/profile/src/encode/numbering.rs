//! Numbering of the referenced entries of a table, in order of first use, so that an encoder writes no orphan.

const UNUSED: u32 = u32::MAX;

/// Ids of one table in wire order, and the wire index of each id. The empty value always has index 0.
pub(super) struct WireNumbering {
    ids: Vec<u32>,
    wire: Vec<u32>,
    empty_used: bool,
}

impl WireNumbering {
    pub fn new(table_length: usize) -> Self {
        let mut wire = vec![UNUSED; table_length.max(1)];
        wire[0] = 0;
        Self { ids: vec![0], wire, empty_used: false }
    }

    /// Marks an id as used; `true` on its first use. An unassigned id counts as the empty value.
    pub fn mark(&mut self, id: u32) -> bool {
        match self.wire.get_mut(id as usize) {
            Some(wire) if *wire == UNUSED => {
                *wire = self.ids.len() as u32;
                self.ids.push(id);
                true
            }
            Some(wire) if *wire != 0 => false,
            _ => {
                self.empty_used = true;
                false
            }
        }
    }

    /// Numbers the marked ids in ascending order instead of the order of first use.
    pub fn sort(&mut self) {
        self.ids[1..].sort_unstable();
        for (at, id) in self.ids.iter().enumerate() {
            self.wire[*id as usize] = at as u32;
        }
    }

    /// The wire index of an id.
    pub fn wire(&self, id: u32) -> u64 {
        match self.wire.get(id as usize) {
            Some(&wire) if wire != UNUSED => u64::from(wire),
            _ => 0,
        }
    }

    /// The ids in wire order; the first is the empty value.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The marked ids in wire order; the empty value is included only if it was marked.
    pub fn marked(&self) -> &[u32] {
        &self.ids[usize::from(!self.empty_used)..]
    }
}
