//! Inputs of a walk besides registers and the VM's layout: memory, and state of the process. Production walks use the caches
//! of the process. Walks over other memory use none, so that they depend on that memory only.

use std::sync::atomic::{AtomicUsize, Ordering};

use spanprof_signal::{ProcessMemory, RawFrame};
use spanprof_unwind::UnwindTables;

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
    /// Registers of Java code that a signal interrupted, as a fault does.
    Fault,
    /// Frames in heap stack chunks.
    FramesInHeap,
}

/// Registers of the generated code that called native code.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeCaller {
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
    /// Address of the kernel's context if a signal interrupted the code; else 0.
    pub context: usize,
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

    /// The tables that unwind native code.
    #[inline(always)]
    fn unwind_tables(self) -> Option<UnwindTables> {
        None
    }

    /// Whether native callers are written to stacks.
    #[inline(always)]
    fn shows_native_callees(self) -> bool {
        false
    }

    /// Whether functions of the VM are written among them.
    #[inline(always)]
    fn shows_runtime(self) -> bool {
        false
    }

    /// An address in the code of the VM's library; 0 if it is unknown.
    #[inline(always)]
    fn vm_function(self) -> usize {
        0
    }

    /// The caller of the interrupted native code, where it is known without tables.
    #[inline(always)]
    fn known_native_caller(self) -> Option<NativeCaller> {
        None
    }

    /// The tables led from the interrupted native code to this caller.
    #[inline(always)]
    fn met_native_caller(self, _caller: NativeCaller) {}

    /// The walk has this property.
    #[inline(always)]
    fn met(self, _feature: WalkFeature) {}
}

/// Addresses of the blob names of compiled code; the VM has one string of each.
static COMPILED_NAMES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
const COMPILED_KINDS: [BlobKind; 2] = [BlobKind::Compiled, BlobKind::NativeWrapper];

static VM_FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// Stores an address in the code of the VM's library.
pub fn set_vm_function(address: usize) {
    VM_FUNCTION.store(address, Ordering::Relaxed);
}

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
    fn unwind_tables(self) -> Option<UnwindTables> {
        UnwindTables::borrow()
    }

    #[inline(always)]
    fn shows_native_callees(self) -> bool {
        spanprof_unwind::shows_native_callees()
    }

    #[inline(always)]
    fn shows_runtime(self) -> bool {
        spanprof_unwind::shows_runtime()
    }

    #[inline(always)]
    fn vm_function(self) -> usize {
        VM_FUNCTION.load(Ordering::Relaxed)
    }
}
