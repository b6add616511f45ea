//! The unwind tables (`.eh_frame`) of the loaded objects, for walks of code without frame pointers. Read at the first start that
//! needs them, and again after objects were loaded or unloaded. Normal threads only; the walk itself is in `calling_thread`.
//!
//! Limits: objects are walked by frame pointers until the first drain after they were loaded, and in a forked child, which has
//! the tables of its parent. The tables of the program are used in place. Those of libraries are copied, because a library can be
//! unloaded; tables above [`MAX_COPIED_BYTES`] are not used.

use std::ffi::{c_int, c_void, CStr};
use std::ops::{Deref, Range};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use framehop::{CacheNative, ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder, UnwinderNative};
use gimli::{BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Register, UnwindContext, UnwindSection};
use spanprof_os::LoaderCounts;
use spanprof_signal::buffer_pool::{claim_buffer, PooledBuffer};
use spanprof_signal::heap::CONCURRENT_WALKS;

/// Limit for the copies of all libraries.
const MAX_COPIED_BYTES: usize = 8 << 20;

/// Scratch memory of one walk: recently used rules, and space to evaluate new ones. The rules belong to one unwinder, and are not
/// used by another one.
pub(super) type WalkCache = CacheNative<MustNotAllocateDuringUnwind>;

/// The unwinder with the tables of the loaded objects.
pub(super) struct UnwindTables {
    pub unwinder: UnwinderNative<TableBytes, MustNotAllocateDuringUnwind>,
    functions: Vec<FunctionIndex>,
    /// The linker's counters before the objects were read; `None` in a forked child.
    counts: Option<LoaderCounts>,
}

/// Bytes of a table.
#[derive(Clone)]
pub(super) enum TableBytes {
    /// Of the program.
    InPlace(&'static [u8]),
    /// Of a library.
    Copied(Arc<[u8]>),
}

impl Default for TableBytes {
    fn default() -> Self {
        Self::InPlace(&[])
    }
}

impl Deref for TableBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// The functions of an object, sorted by address: its `.eh_frame_hdr`.
struct FunctionIndex {
    code: Range<u64>,
    /// Address of the index in the process.
    start: u64,
    index: TableBytes,
    /// Address of `table` in the process.
    table_start: u64,
    /// Its `.eh_frame`.
    table: TableBytes,
}

impl FunctionIndex {
    /// The register from which the frame of the function at `address` is found; `None` without a rule.
    fn frame_register(&self, address: u64) -> Option<Register> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(self.start).set_eh_frame(self.table_start);
        let header = EhFrameHdr::new(&self.index, LittleEndian).parse(&bases, 8).ok()?;
        let table = EhFrame::new(&self.table, LittleEndian);
        let function = header.table()?.fde_for_address(&table, &bases, address, EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let row = function.unwind_info_for_address(&table, &bases, &mut context, address).ok()?;
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, .. } => Some(*register),
            CfaRule::Expression(_) => None,
        }
    }
}

#[cfg(target_arch = "x86_64")]
const FRAME_POINTER: Register = gimli::X86_64::RBP;
#[cfg(target_arch = "aarch64")]
const FRAME_POINTER: Register = gimli::AArch64::X29;

/// Whether the function at `address` has set its frame pointer there, or it is in no object with tables, as generated code is, which
/// has frame pointers. If false, the frame pointer is still that of a caller. For the drain thread only.
pub(crate) fn is_frame_pointer_set(address: u64) -> bool {
    // SAFETY: null, or a box that only the drain thread frees, which is the caller.
    let Some(tables) = (unsafe { TABLES.load(Ordering::Acquire).as_ref() }) else { return true };
    let object = tables.functions.iter().find(|table| table.code.contains(&address));
    object.is_none_or(|object| object.frame_register(address) == Some(FRAME_POINTER))
}

impl UnwindTables {
    /// Whether an address is in code of the program, not of a library. The linker reports the program first.
    pub(crate) fn is_in_program(&self, address: u64) -> bool {
        self.functions.first().is_some_and(|program| program.code.contains(&address))
    }

    /// The address at which the function of `pc` begins.
    pub(crate) fn function_start(&self, pc: u64) -> Option<u64> {
        let table = self.functions.iter().find(|table| table.code.contains(&pc))?;
        function_start(&table.index, pc.wrapping_sub(table.start)).map(|offset| table.start.wrapping_add(offset))
    }
}

/// The last function that begins at or before `offset`, all relative to the index. `None` unless the table has the encoding
/// that all linkers use: a count of four bytes, then pairs of differences of four bytes to the start of the index
/// (`DW_EH_PE_datarel | DW_EH_PE_sdata4`; Linux Standard Base, 10.6.2).
fn function_start(index: &[u8], offset: u64) -> Option<u64> {
    let word = |at: usize| Some(i32::from_le_bytes(*index.get(at..)?.first_chunk()?));
    if index.get(2..4)? != [0x03, 0x3b] {
        return None;
    }
    let count = word(8)? as u32 as usize;
    let (pairs, _) = index.get(12..)?.get(..count.checked_mul(8)?)?.as_chunks::<8>();
    let start = |pair: &[u8; 8]| i64::from(i32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]));
    let after = pairs.partition_point(|pair| start(pair) <= offset as i64);
    pairs.get(after.checked_sub(1)?).map(|pair| start(pair) as u64)
}

/// Replaced as a whole; [`RETIRED`] has the ones before until no walk uses them.
static TABLES: AtomicPtr<UnwindTables> = AtomicPtr::new(null_mut());
static CACHES: AtomicPtr<Vec<PooledBuffer<WalkCache>>> = AtomicPtr::new(null_mut());
static RETIRED: Mutex<Vec<RetiredTables>> = Mutex::new(Vec::new());

/// Tables that a walk may still use, which began before they were replaced.
struct RetiredTables {
    _tables: Box<UnwindTables>,
    /// Caches that have been in use since.
    in_use: Vec<usize>,
}

fn caches() -> Option<&'static [PooledBuffer<WalkCache>]> {
    // SAFETY: null, or a leaked box.
    unsafe { CACHES.load(Ordering::Acquire).as_ref() }.map(Vec::as_slice)
}

/// Runs `walk` with the tables and a cache; `None` before [`load_unwind_tables`], and if all caches are in use. `hint` selects
/// the first cache that is tried. No allocation, no lock.
pub(super) fn with_unwind_tables<R>(hint: u64, walk: impl FnOnce(&UnwindTables, &mut WalkCache) -> R) -> Option<R> {
    let mut cache = claim_buffer(caches()?, hint as usize)?;
    // SAFETY: null, or a box that is freed only after this cache was seen unused; it is loaded after the cache was claimed.
    let tables = unsafe { TABLES.load(Ordering::Acquire).as_ref() }?;
    Some(cache.with(|cache| walk(tables, cache)))
}

/// In the fork hook: the walks of the parent's other threads do not exist.
fn reset_in_child() {
    if let Some(caches) = caches() {
        spanprof_signal::buffer_pool::return_all(caches);
    }
}

/// Reads the tables, unless that is done.
pub(crate) fn load_unwind_tables() {
    if !TABLES.load(Ordering::Acquire).is_null() {
        return;
    }
    spanprof_os::reset_in_child_by(reset_in_child);
    let caches = (0..CONCURRENT_WALKS).map(|_| PooledBuffer::new(WalkCache::new_in())).collect();
    // A concurrent second caller leaks its own caches and tables; no thread waits.
    _ = CACHES.compare_exchange(null_mut(), Box::into_raw(Box::new(caches)), Ordering::AcqRel, Ordering::Acquire);
    let tables = Box::into_raw(Box::new(read_tables(&[])));
    _ = TABLES.compare_exchange(null_mut(), tables, Ordering::AcqRel, Ordering::Acquire);
}

/// Reads the tables again after objects were loaded or unloaded, and frees those that no walk uses. Called by the drain thread
/// only; without effect in a forked child.
pub(crate) fn refresh_unwind_tables() {
    // SAFETY: null, or a box that only this thread frees.
    let Some(current) = (unsafe { TABLES.load(Ordering::Acquire).as_ref() }) else { return };
    let (Some(counts), Some(caches)) = (spanprof_os::loader_counts(), caches()) else { return };
    let Ok(mut retired) = RETIRED.try_lock() else { return };
    if current.counts != Some(counts) {
        let tables = TABLES.swap(Box::into_raw(Box::new(read_tables(&current.functions))), Ordering::AcqRel);
        // SAFETY: it was created by `Box::into_raw`; it is no longer in `TABLES`, and is freed once.
        let tables = unsafe { Box::from_raw(tables) };
        retired.push(RetiredTables { _tables: tables, in_use: (0..caches.len()).collect() });
    }
    for tables in &mut *retired {
        tables.in_use.retain(|cache| caches.get(*cache..=*cache).is_some_and(|cache| claim_buffer(cache, 0).is_none()));
    }
    retired.retain(|tables| !tables.in_use.is_empty());
}

/// The tables of the loaded objects. Copies of `known` ones are shared.
fn read_tables(known: &[FunctionIndex]) -> UnwindTables {
    let counts = spanprof_os::loader_counts();
    let mut unwinder = UnwinderNative::new();
    let mut functions = Vec::new();
    for (object, table) in loaded_objects(known) {
        unwinder.add_module(object);
        functions.push(table);
    }
    UnwindTables { unwinder, functions, counts }
}

type LoadedObject = (Module<TableBytes>, FunctionIndex);

struct Objects<'a> {
    found: Vec<LoadedObject>,
    known: &'a [FunctionIndex],
    visited: usize,
    copied_bytes: usize,
}

fn loaded_objects(known: &[FunctionIndex]) -> Vec<LoadedObject> {
    unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _: usize, objects: *mut c_void) -> c_int {
        // SAFETY: the linker passes its description of an object that stays loaded during the call, and our argument.
        let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Objects<'_>>()) };
        // The linker reports the program first.
        let is_program = objects.visited == 0;
        objects.visited += 1;
        if let Some(module) = module(info, is_program, objects.known, &mut objects.copied_bytes) {
            objects.found.push(module);
        }
        0
    }
    let mut objects = Objects { found: Vec::new(), known, visited: 0, copied_bytes: 0 };
    // SAFETY: `take` uses its argument as what it is.
    unsafe { spanprof_os::iterate_loaded_objects(take, &mut objects) };
    objects.found
}

/// An object with unwind tables; `None` without them.
fn module(
    info: &libc::dl_phdr_info,
    is_program: bool,
    known: &[FunctionIndex],
    copied_bytes: &mut usize,
) -> Option<LoadedObject> {
    let base = info.dlpi_addr;
    // SAFETY: the linker's own array of this object, which is loaded during this call.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let range = |header: &libc::Elf64_Phdr| header.p_vaddr..header.p_vaddr + header.p_memsz;
    let segments: Vec<Range<u64>> = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0)
        .map(range)
        .collect();
    let segment_of = |address: u64| segments.iter().find(|segment| segment.contains(&address));
    let index = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).map(range)?;
    let index = index.start..index.end.min(segment_of(index.start)?.end);
    let code =
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0).map(range);
    let code = code.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))?;
    // SAFETY: `range` lies in a readable segment of the object, mapped at `base` during this call, and longer if it is the
    // program, which is never unloaded.
    let mapped = |range: &Range<u64>| unsafe {
        let (start, length) = (base.wrapping_add(range.start), range.end - range.start);
        std::slice::from_raw_parts(start as usize as *const u8, length as usize)
    };
    let index_bytes: &'static [u8] = mapped(&index);
    let start = eh_frame_start(index.start, index_bytes)?;
    // Its length is not recorded; each entry has its own.
    let table = start..segment_of(start)?.end;
    let table_start = base.wrapping_add(start);
    let table_bytes = mapped(&table);
    let (code_start, index_start) = (base.wrapping_add(code.start), base.wrapping_add(index.start));
    let code_in_process = code_start..base.wrapping_add(code.end);
    *copied_bytes += if is_program { 0 } else { index_bytes.len() + table_bytes.len() };
    if *copied_bytes > MAX_COPIED_BYTES {
        return None;
    }
    // An equal index describes equal code.
    let same = known.iter().find(|known| {
        (&known.code, known.start, &*known.index) == (&code_in_process, index_start, index_bytes)
            && known.table.len() == table_bytes.len()
    });
    let (index_bytes, table_bytes) = match same {
        Some(same) => (same.index.clone(), same.table.clone()),
        None if is_program => (TableBytes::InPlace(index_bytes), TableBytes::InPlace(table_bytes)),
        None => (TableBytes::Copied(index_bytes.into()), TableBytes::Copied(table_bytes.into())),
    };
    // SAFETY: null, or a NUL-terminated name of the linker, valid during this call.
    let name = unsafe { info.dlpi_name.as_ref().map(|name| CStr::from_ptr(name)) };
    let sections = ExplicitModuleSectionInfo {
        text_svma: Some(code.clone()),
        eh_frame_svma: Some(table),
        eh_frame: Some(table_bytes.clone()),
        eh_frame_hdr_svma: Some(index.clone()),
        eh_frame_hdr: Some(index_bytes.clone()),
        ..ExplicitModuleSectionInfo::default()
    };
    let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let module = Module::new(name, code_in_process.clone(), base, sections);
    let code = code_in_process;
    Some((module, FunctionIndex { code, start: index_start, index: index_bytes, table_start, table: table_bytes }))
}

/// The address of `.eh_frame` in the encoding that every linker writes into `.eh_frame_hdr` (Linux Standard Base, 10.6.2):
/// version 1, then a difference of four bytes (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`). `None` for another one.
fn eh_frame_start(index_start: u64, index: &[u8]) -> Option<u64> {
    let [1, 0x1b, _, _, a, b, c, d, ..] = *index else { return None };
    index_start.checked_add_signed(4 + i64::from(i32::from_le_bytes([a, b, c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_the_c_library_have_unwind_tables() {
        assert!(loaded_objects(&[]).len() >= 2);
    }

    #[test]
    fn the_start_of_a_function_is_found_from_an_address_in_it() {
        let tables = read_tables(&[]);
        for function in [loaded_objects as *const () as u64, libc::epoll_wait as *const () as u64] {
            assert_eq!([0, 1, 9].map(|offset| tables.function_start(function + offset)), [Some(function); 3]);
        }
        assert_eq!(tables.function_start(0), None);
        assert_eq!(function_start(&[1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 9, 0, 0, 0, 1], 5), None, "truncated");
    }

    #[test]
    fn a_function_has_set_its_frame_pointer_after_its_first_instructions_only() {
        load_unwind_tables();
        // The C library of most distributions has no frame pointers.
        let getenv = libc::getenv as *const () as u64;
        assert!(!is_frame_pointer_set(getenv));
        // The tests are built without optimization: each function of the program has a frame, and sets no frame pointer first.
        assert!(!is_frame_pointer_set(read_tables as *const () as u64));
        assert!(is_frame_pointer_set(16), "no object");
    }

    #[test]
    fn the_start_of_the_table_is_read_from_its_index() {
        assert_eq!(eh_frame_start(1000, &[1, 0x1b, 3, 0x3b, 0xfc, 0xff, 0xff, 0xff, 9]), Some(1000));
        assert_eq!(eh_frame_start(1000, &[1, 0x1c, 3, 0x3b, 0, 0, 0, 0]), None);
        assert_eq!(eh_frame_start(1000, &[1, 0x1b]), None);
    }
}
