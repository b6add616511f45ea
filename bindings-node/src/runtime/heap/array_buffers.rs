//! Memory of array buffers in the heap profile: installs hooks in the allocator of each isolate, through which V8 and Node.js
//! allocate and free the memory of `ArrayBuffer`, `SharedArrayBuffer`, typed arrays and `Buffer`. All functions run on
//! JavaScript threads, unless documented otherwise. Not here: the hooks (`array_buffer_hooks`).
//!
//! The allocator is a C++ object whose first word points to its virtual functions. The hooks are entries in a copy of that table;
//! one store makes the object use the copy. It stays installed: after a stop the hooks select nothing. The table is only used
//! if it is that of the exported class and has each exported function once; then a known allocation must call a hook once.
//!
//! # Changes in V8 and Node.js
//! Upstream: `include/v8-array-buffer.h` (`ArrayBuffer::Allocator`), in Node.js `src/node_internals.h`
//! (`NodeArrayBufferAllocator`). Compared with the headers and symbols of 18.20, 20.20, 22.23, 24.21 and 26.10.
//!
//! | version | change | handled in |
//! |---|---|---|
//! | 10.2 (18) to 12.4 (22) | `Reallocate` after `Free` | `HookTable::find` searches by function, not by index |
//! | 13.6 (24) to 14.6 (26) | `MaxAllocationSize` and `GetPageAllocator` instead | the search, which does not find `Reallocate` |
//!
//! Wrappers of `Buffer` in JavaScript would change functions of the program and miss files and sockets; an allocator of our own
//! cannot replace that of the main isolate. Not seen: memory that others pass to a Buffer, `WebAssembly.Memory`, resizable
//! buffers.

use std::ffi::CStr;
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use spanprof_profiler::binding::log;
use spanprof_profiler::LogLevel;
use spanprof_signal::guarded;

use super::array_buffer_hooks as hooks;
use super::array_buffer_hooks::{NodeAllocator, NODE_ALLOCATOR};
use super::node_api::{create_array_buffer, HandleScope};
use crate::runtime::v8::lookup;

/// Words before the first function: the offset to the top and the type information (Itanium C++ ABI).
const HEADER_WORDS: usize = 2;
/// The functions are searched in the first words. The class has 9 or 10.
const SEARCHED_FUNCTIONS: usize = 12;
/// Copied words. Constants behind the table are copied too, and not used.
const TABLE_WORDS: usize = 64;
/// Size of the self-test's buffer, bytes: of no allocation of Node.js.
const TESTED_BYTES: usize = 7919;

/// Node's table of virtual functions, and its copy with hooks: addresses of the first function.
struct HookTable {
    node: usize,
    hooked: usize,
}

static TABLE: OnceLock<Result<HookTable, &'static str>> = OnceLock::new();
static IS_TESTED: AtomicBool = AtomicBool::new(false);
/// Held during the self-test.
static TESTING: Mutex<()> = Mutex::new(());
/// Why an allocator has no hooks; the first reason.
static REFUSED: OnceLock<&'static str> = OnceLock::new();
static HOOKED: AtomicU64 = AtomicU64::new(0);

/// Installs the hooks in the allocator of the calling thread's isolate, once. Warns once if that is not possible.
pub fn install(isolate: usize) {
    if REFUSED.get().is_some() {
        return;
    }
    if let Err(reason) = try_install(isolate) {
        if REFUSED.set(reason).is_ok() {
            log(LogLevel::Warning, &format!("spanprof: the heap profile has no array buffers and Buffers: {reason}"));
        }
    }
}

fn try_install(isolate: usize) -> Result<(), &'static str> {
    let table = TABLE.get_or_init(HookTable::find).as_ref().map_err(|reason| *reason)?;
    let allocator_of: Option<unsafe extern "C" fn(usize) -> *const AtomicUsize> =
        lookup::function!(c"_ZN2v87Isolate23GetArrayBufferAllocatorEv");
    let allocator_of = allocator_of.ok_or("this Node.js does not export v8::Isolate::GetArrayBufferAllocator")?;
    // SAFETY: on the isolate's thread; the allocator outlives the isolate, and its first word is the address of its table.
    let functions = unsafe { allocator_of(isolate).as_ref() }.ok_or("the isolate has no allocator of array buffers")?;
    match functions.load(Ordering::Relaxed) {
        current if current == table.hooked => return Ok(()),
        current if current == table.node => {}
        _ => return Err("the isolate has another allocator of array buffers"),
    }
    functions.store(table.hooked, Ordering::Release);
    if !IS_TESTED.load(Ordering::Relaxed) {
        match test() {
            Some(true) => IS_TESTED.store(true, Ordering::Relaxed),
            failed => {
                functions.store(table.node, Ordering::Release);
                // Without an environment, or with an exception pending, a later call tests.
                return failed.map_or(Ok(()), |_| Err("a known allocation did not call the hook once"));
            }
        }
    }
    HOOKED.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Whether a known allocation calls a hook once; `None` when it cannot be made now.
fn test() -> Option<bool> {
    let _testing = TESTING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_made = true;
    let calls = HandleScope::with(|| hooks::hook_calls(TESTED_BYTES, || is_made &= create_array_buffer(TESTED_BYTES)))?;
    is_made.then_some(calls == 1)
}

impl HookTable {
    /// The table of the exported class, and a leaked copy in which the exported functions are replaced.
    fn find() -> Result<Self, &'static str> {
        let unknown = "the allocator of array buffers has an unknown layout";
        let table = lookup::data(c"_ZTVN4node24NodeArrayBufferAllocatorE")
            .ok_or("this Node.js does not export node::NodeArrayBufferAllocator")?;
        let words = (0..TABLE_WORDS).map_while(|word| guarded::read_u64(table + word * 8));
        let mut words: Vec<usize> = words.map(|word| word as usize).collect();
        let mut replace = |name: &CStr, hook: usize| {
            let function = lookup::data(name)?;
            let searched = words.get_mut(HEADER_WORDS..HEADER_WORDS + SEARCHED_FUNCTIONS)?;
            let mut slots = searched.iter_mut().filter(|word| **word == function);
            let slot = slots.next().filter(|_| slots.next().is_none())?;
            *slot = hook;
            Some(function)
        };
        let allocate = replace(c"_ZN4node24NodeArrayBufferAllocator8AllocateEm", hooks::allocate as *const () as usize);
        let uninitialized = replace(
            c"_ZN4node24NodeArrayBufferAllocator21AllocateUninitializedEm",
            hooks::allocate_uninitialized as *const () as usize,
        );
        let free = replace(c"_ZN4node24NodeArrayBufferAllocator4FreeEPvm", hooks::free as *const () as usize);
        const REALLOCATE: &CStr = c"_ZN4node24NodeArrayBufferAllocator10ReallocateEPvmm";
        let reallocate = replace(REALLOCATE, hooks::reallocate as *const () as usize);
        if reallocate.is_none() && lookup::data(REALLOCATE).is_some() {
            return Err(unknown);
        }
        let (Some(allocate), Some(uninitialized), Some(free)) = (allocate, uninitialized, free) else {
            return Err(unknown);
        };
        // SAFETY: each address is the exported function of that mangled name, whose C++ signature is the C type.
        let node = unsafe {
            NodeAllocator {
                allocate: transmute::<usize, hooks::Allocate>(allocate),
                allocate_uninitialized: transmute::<usize, hooks::Allocate>(uninitialized),
                free: transmute::<usize, hooks::Free>(free),
                reallocate: reallocate.map(|function| transmute::<usize, hooks::Reallocate>(function)),
            }
        };
        NODE_ALLOCATOR.store(Box::into_raw(Box::new(node)), Ordering::Release);
        let hooked = Box::leak(words.into_boxed_slice());
        let first = |table: usize| table + HEADER_WORDS * 8;
        Ok(Self { node: first(table), hooked: first(hooked.as_ptr() as usize) })
    }
}

/// For `stats()`, on any thread.
pub fn statistics(out: &mut Vec<(&'static str, String)>) {
    out.push(("node.array_buffer_allocators", HOOKED.load(Ordering::Relaxed).to_string()));
    out.extend(REFUSED.get().map(|reason| ("node.array_buffers_refused", (*reason).to_owned())));
}
