//! Encoding of Java raw frames: a method address with a fingerprint, or a marker for anything else. A raw frame keeps
//! nothing of the VM alive. If the address holds another method when it is resolved, the fingerprint differs and the frame
//! is named `[code_ended]`.

use spanprof_signal::RawFrame;

const ADDRESS: u64 = (1 << 48) - 1;
/// The bytecode index is unknown.
pub const NO_INDEX: u16 = u16::MAX;

/// A decoded raw frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Bytecode `index` of the method at this address, if its fingerprint still matches.
    Method { address: usize, fingerprint: u64, index: u16 },
    /// A stub, by its address.
    Stub(usize),
    /// A thread without Java frames, by its kernel thread id.
    Thread(u32),
    /// The remaining frames of this virtual thread are in heap stack chunks.
    FramesInHeap,
    /// Bytecode `index` of the method with this JVMTI id; `id` is 0 for a method without one.
    MethodId { id: usize, index: u16 },
    /// The class of an allocated object, by its number in `class_names`.
    Class(u32),
    /// A collector or the cause of a collection, by its number in `gc_pauses`.
    Collection(u32),
}

const STUB: u64 = 1 << 48 | 1;
/// The code of all thread frames.
pub const THREAD: u64 = 2 << 48 | 1;
const FRAMES_IN_HEAP: u64 = 3 << 48 | 1;
/// The code of all frames from `AsyncGetCallTrace`.
pub const METHOD_ID: u64 = 4 << 48 | 1;

const CLASS: u64 = 5 << 48 | 1;
const COLLECTION: u64 = 6 << 48 | 1;

/// Encodes a method.
#[inline]
pub fn method(address: usize, fingerprint: u64, index: u16) -> RawFrame {
    RawFrame { code: (address as u64 & ADDRESS) | (fingerprint & !ADDRESS), at: fingerprint << 16 | u64::from(index) }
}

#[inline]
pub fn stub(pc: usize) -> RawFrame {
    RawFrame { code: STUB, at: pc as u64 }
}

#[inline]
pub fn thread(thread_id: u32) -> RawFrame {
    RawFrame { code: THREAD, at: u64::from(thread_id) }
}

/// Encodes a method by its JVMTI id, which is an address or a small number.
#[inline]
pub fn method_id(id: usize, index: u16) -> RawFrame {
    RawFrame { code: METHOD_ID, at: (id as u64) << 16 | u64::from(index) }
}

/// Encodes the class of an allocated object.
pub fn class(number: u32) -> RawFrame {
    RawFrame { code: CLASS, at: u64::from(number) }
}

/// Encodes a collector or the cause of a collection.
pub fn collection(number: u32) -> RawFrame {
    RawFrame { code: COLLECTION, at: u64::from(number) }
}

pub const IN_HEAP: RawFrame = RawFrame { code: FRAMES_IN_HEAP, at: 0 };

/// Decodes a raw frame.
pub fn decode(frame: RawFrame) -> FrameKind {
    match frame.code {
        STUB => FrameKind::Stub(frame.at as usize),
        THREAD => FrameKind::Thread(frame.at as u32),
        FRAMES_IN_HEAP => FrameKind::FramesInHeap,
        CLASS => FrameKind::Class(frame.at as u32),
        COLLECTION => FrameKind::Collection(frame.at as u32),
        METHOD_ID => FrameKind::MethodId { id: (frame.at >> 16) as usize, index: frame.at as u16 },
        code => FrameKind::Method {
            address: (code & ADDRESS) as usize,
            fingerprint: (code & !ADDRESS) | frame.at >> 16,
            index: frame.at as u16,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_method_decodes_to_the_same_method() {
        for fingerprint in [0, u64::MAX, 0x1234_5678_9abc_def0] {
            let decoded = decode(method(0x7f00_1234_5678, fingerprint, 77));
            assert_eq!(decoded, FrameKind::Method { address: 0x7f00_1234_5678, fingerprint, index: 77 });
        }
    }

    #[test]
    fn markers_differ_from_methods_and_from_codes_of_the_core() {
        let by_id = FrameKind::MethodId { id: 0x7f00_1234_5678, index: 3 };
        for (frame, kind) in [
            (stub(9000), FrameKind::Stub(9000)),
            (thread(7), FrameKind::Thread(7)),
            (IN_HEAP, FrameKind::FramesInHeap),
            (method_id(0x7f00_1234_5678, 3), by_id),
            (class(9), FrameKind::Class(9)),
            (collection(3), FrameKind::Collection(3)),
        ] {
            assert!(frame.code >= RawFrame::FIRST_RUNTIME_CODE);
            assert_eq!(decode(frame), kind);
        }
    }
}
