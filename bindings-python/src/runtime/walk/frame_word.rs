//! The second word of a raw frame: the generation of its code object and the executing instruction. Written in the handler,
//! read by the resolver. Pure arithmetic, safe in handlers.

/// Generation in the upper half, instruction + 1 in the lower; 0 in the lower half means "before the first instruction".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameWord(pub u64);

impl FrameWord {
    /// Upper bound of the length of bytecode; larger values come from torn reads.
    pub const MAX_UNIT: i64 = 1 << 28;

    /// Packs both. `unit` is -1 before the first instruction; the caller has checked its range.
    #[inline]
    pub const fn new(generation: u32, unit: i64) -> Self {
        Self((generation as u64) << 32 | (unit + 1) as u64 & 0xffff_ffff)
    }

    /// The generation of the code object's bucket when the frame was sampled.
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The instruction, in code units of two bytes.
    pub const fn unit(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_values_are_unpacked_unchanged() {
        let word = FrameWord::new(u32::MAX, 17);
        assert_eq!((word.generation(), word.unit()), (u32::MAX, Some(17)));
        let word = FrameWord::new(3, FrameWord::MAX_UNIT);
        assert_eq!((word.generation(), word.unit()), (3, Some(FrameWord::MAX_UNIT as u32)));
    }

    #[test]
    fn a_frame_that_has_not_begun_has_no_instruction() {
        assert_eq!(FrameWord::new(9, -1).unit(), None);
        assert_eq!(FrameWord::new(9, -1).generation(), 9);
    }
}
