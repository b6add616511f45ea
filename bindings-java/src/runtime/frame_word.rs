//! What a raw frame of ours says: a method with a fingerprint of what it was, or a mark for what is no method. Nothing of
//! the VM is held by a raw frame: when the memory behind it means another method by the time it is named, the
//! fingerprint differs and the frame says `[code_ended]`.

use spanprof_signal::RawFrame;

const ADDRESS: u64 = (1 << 48) - 1;
/// The byte code index is not known.
pub const NO_INDEX: u16 = u16::MAX;

/// What a raw frame stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Byte code `index` of the method at this address, if its fingerprint is still this one.
    Method { address: usize, fingerprint: u64, index: u16 },
    /// Code of the VM's own making, by its address.
    Stub(usize),
    /// A thread that runs no Java code, by its kernel id.
    Thread(u32),
    /// Further frames of this virtual thread lie in the heap.
    FramesInHeap,
    /// Byte code `index` of the method that the VM has this id for; 0 where it gave none.
    MethodId { id: usize, index: u16 },
}

const STUB: u64 = 1 << 48 | 1;
/// The code of every frame that names a thread.
pub const THREAD: u64 = 2 << 48 | 1;
const FRAMES_IN_HEAP: u64 = 3 << 48 | 1;
/// The code of every frame that the VM's own walk gave.
pub const METHOD_ID: u64 = 4 << 48 | 1;

/// The raw frame of a method.
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

/// The raw frame of a method that the VM walked over. Its id is an address, or a small number.
#[inline]
pub fn method_id(id: usize, index: u16) -> RawFrame {
    RawFrame { code: METHOD_ID, at: (id as u64) << 16 | u64::from(index) }
}

pub const IN_HEAP: RawFrame = RawFrame { code: FRAMES_IN_HEAP, at: 0 };

/// Reads a raw frame back.
pub fn read(frame: RawFrame) -> Place {
    match frame.code {
        STUB => Place::Stub(frame.at as usize),
        THREAD => Place::Thread(frame.at as u32),
        FRAMES_IN_HEAP => Place::FramesInHeap,
        METHOD_ID => Place::MethodId { id: (frame.at >> 16) as usize, index: frame.at as u16 },
        code => Place::Method {
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
    fn a_method_is_read_back_as_it_was_written() {
        for fingerprint in [0, u64::MAX, 0x1234_5678_9abc_def0] {
            let read = read(method(0x7f00_1234_5678, fingerprint, 77));
            assert_eq!(read, Place::Method { address: 0x7f00_1234_5678, fingerprint, index: 77 });
        }
    }

    #[test]
    fn marks_are_no_methods_and_no_codes_of_the_core() {
        let by_id = Place::MethodId { id: 0x7f00_1234_5678, index: 3 };
        for (frame, place) in [
            (stub(9000), Place::Stub(9000)),
            (thread(7), Place::Thread(7)),
            (IN_HEAP, Place::FramesInHeap),
            (method_id(0x7f00_1234_5678, 3), by_id),
        ] {
            assert!(frame.code >= RawFrame::FIRST_RUNTIME_CODE);
            assert_eq!(read(frame), place);
        }
    }
}
