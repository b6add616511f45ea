//! Inputs of a walk besides registers and the VM's layout: memory, and state of the process. Production walks use the caches
//! of the process. Walks over other memory use none, so that they depend on that memory only.

use std::sync::atomic::{AtomicUsize, Ordering};

use spanprof_signal::{guarded, ProcessMemory, RawFrame};

use super::pc_cache::{self, PcInfo, MAX_CACHED};
use crate::runtime::vm::memory::VmMemory;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobKind {
    /// An nmethod of a Java method.
    Compiled,
    /// The wrapper of a native method: one frame, never deoptimized.
    NativeWrapper,
    /// The stubs of continuations. A virtual thread's frame returns to one if its caller is in a heap stack chunk.
    ContinuationStub,
    /// Any other blob.
    Stub,
}

/// A property of a walk, which shows the shape of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WalkFeature {
    Compiled,
    /// A compiled frame with inlined methods.
    Inlined,
    /// Interrupted compiled code before its frame is built, or after it is removed.
    PartialFrame,
    /// An out-of-line GC barrier stub, with registers saved on top of the frame.
    SlowPath,
    /// A caller in deoptimized code, decoded at its original pc.
    OriginalPc,
    Interpreted,
    /// Interrupted in the interpreter before its frame is built, or after it is removed.
    PartialInterpretedFrame,
    /// An interpreter frame of deoptimization, without a method.
    SkeletalFrame,
    Stub,
    /// An i2c or c2i adapter that moves the arguments.
    Adapter,
    /// Native code at the leaf.
    Native,
    /// The last Java frame of a frame anchor.
    Anchor,
    /// A call from native code into Java.
    EntryFrame,
    /// Registers at a fault of Java code.
    Fault,
    /// Frames in heap stack chunks.
    FramesInHeap,
}

/// Memory and state of the process that a walk reads. The default methods are for walks without process state.
pub trait WalkEnvironment: VmMemory {
    /// Looks a program counter up in the cache of decoded ones; see [`pc_cache::find`].
    #[inline(always)]
    fn find_pc(self, _pc: usize, _frames: &mut [RawFrame; MAX_CACHED]) -> Option<(PcInfo, usize)> {
        None
    }

    /// Inserts a decoded program counter into the cache.
    #[inline(always)]
    fn insert_pc(self, _pc: usize, _info: &PcInfo, _frames: &[RawFrame]) {}

    /// The kind of blobs with the name at this address, if it is known.
    #[inline(always)]
    fn kind_of_name(self, _name: usize) -> Option<BlobKind> {
        None
    }

    /// Stores the kind of blobs with the name at this address.
    #[inline(always)]
    fn set_kind_of_name(self, _name: usize, _kind: BlobKind) {}

    /// The code that signal handlers return to; `None` if it is unknown, or reads of the stack would be system calls.
    fn signal_trampoline(self) -> Option<usize>;

    /// The walk has this property.
    #[inline(always)]
    fn met(self, _feature: WalkFeature) {}
}

/// Addresses of the blob names of compiled code; the VM has one string of each.
static COMPILED_NAMES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
const COMPILED_KINDS: [BlobKind; 2] = [BlobKind::Compiled, BlobKind::NativeWrapper];

impl WalkEnvironment for ProcessMemory {
    #[inline(always)]
    fn find_pc(self, pc: usize, frames: &mut [RawFrame; MAX_CACHED]) -> Option<(PcInfo, usize)> {
        pc_cache::find(pc, frames)
    }

    #[inline(always)]
    fn insert_pc(self, pc: usize, info: &PcInfo, frames: &[RawFrame]) {
        pc_cache::insert(pc, info, frames);
    }

    #[inline(always)]
    fn kind_of_name(self, name: usize) -> Option<BlobKind> {
        let mut kinds = COMPILED_NAMES.iter().zip(COMPILED_KINDS);
        kinds.find(|(stored, _)| stored.load(Ordering::Relaxed) == name).map(|(_, kind)| kind)
    }

    #[inline(always)]
    fn set_kind_of_name(self, name: usize, kind: BlobKind) {
        if let Some((stored, _)) = COMPILED_NAMES.iter().zip(COMPILED_KINDS).find(|(_, compiled)| *compiled == kind) {
            stored.store(name, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn signal_trampoline(self) -> Option<usize> {
        Some(guarded::signal_trampoline()).filter(|code| *code != 0 && guarded::is_installed())
    }
}
