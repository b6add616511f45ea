//! Reads VMStructs, the tables in which HotSpot exports field offsets, type sizes and constants
//! (`hotspot/share/runtime/vmStructs.hpp`). Read once, not in handlers. The fields that the
//! profiler uses are in `layout_reader`.

use std::collections::HashMap;
use std::ffi::{c_void, CStr, CString};

use super::memory::{int, word};

/// Upper bound of the length of a name.
const MAX_NAME_BYTES: usize = 256;
/// Upper bound of the number of entries of a table.
const MAX_ENTRIES: usize = 20_000;

/// `libjvm.so`, for its symbols.
pub struct VmLibrary(*mut c_void);

impl VmLibrary {
    /// The library that holds `address`.
    pub fn of(address: usize) -> Option<Self> {
        // SAFETY: an all-zero Dl_info is a valid value to be written over.
        let mut object: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: dladdr only compares the address with the loaded objects.
        if unsafe { libc::dladdr(address as *const c_void, &mut object) } == 0 || object.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the path comes from the dynamic linker; RTLD_NOLOAD loads nothing.
        let handle = unsafe { libc::dlopen(object.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// The address of an exported function or variable.
    pub fn symbol(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open and the name ends in NUL.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address as usize)
    }

    /// The value of an exported variable.
    fn variable(&self, name: &str) -> Option<usize> {
        word(self.symbol(name)?)
    }
}

/// The tables of VMStructs.
#[derive(Default)]
pub struct VmStructs {
    offsets: HashMap<(String, String), usize>,
    addresses: HashMap<(String, String), usize>,
    sizes: HashMap<String, usize>,
    constants: HashMap<String, i32>,
}

impl VmStructs {
    /// Reads the tables; `None` if the library does not export them.
    pub fn read(library: &VmLibrary) -> Option<Self> {
        let mut structures = Self::default();
        structures.read_fields(library)?;
        let first = library.variable("gHotSpotVMTypes")?;
        let layout = |item: &str| library.variable(&format!("gHotSpotVMTypeEntry{item}"));
        let (stride, name, size) = (layout("ArrayStride")?, layout("TypeNameOffset")?, layout("SizeOffset")?);
        for entry in entries(first, stride) {
            let Some(name) = text(word(entry + name)?) else { break };
            structures.sizes.insert(name, word(entry + size)?);
        }
        let first = library.variable("gHotSpotVMIntConstants")?;
        let layout = |item: &str| library.variable(&format!("gHotSpotVMIntConstantEntry{item}"));
        let (stride, name, value) = (layout("ArrayStride")?, layout("NameOffset")?, layout("ValueOffset")?);
        for entry in entries(first, stride) {
            let Some(name) = text(word(entry + name)?) else { break };
            structures.constants.insert(name, int(entry + value)?);
        }
        Some(structures)
    }

    fn read_fields(&mut self, library: &VmLibrary) -> Option<()> {
        let first = library.variable("gHotSpotVMStructs")?;
        let layout = |item: &str| library.variable(&format!("gHotSpotVMStructEntry{item}"));
        let (stride, owner, field) = (layout("ArrayStride")?, layout("TypeNameOffset")?, layout("FieldNameOffset")?);
        let (is_static, offset, address) =
            (layout("IsStaticOffset")?, layout("OffsetOffset")?, layout("AddressOffset")?);
        for entry in entries(first, stride) {
            let Some(owner) = text(word(entry + owner)?) else { break };
            let name = (owner, text(word(entry + field)?).unwrap_or_default());
            if int(entry + is_static)? != 0 {
                self.addresses.insert(name, word(entry + address)?);
            } else {
                self.offsets.insert(name, word(entry + offset)?);
            }
        }
        Some(())
    }

    /// The offset of `Owner::field`, or its name as the error.
    pub fn offset(&self, owner: &str, field: &str) -> Result<usize, String> {
        self.offset_if_known(owner, field).ok_or_else(|| format!("{owner}::{field}"))
    }

    pub fn offset_if_known(&self, owner: &str, field: &str) -> Option<usize> {
        self.offsets.get(&(owner.to_owned(), field.to_owned())).copied()
    }

    /// The address of the static `Owner::field`.
    pub fn address(&self, owner: &str, field: &str) -> Result<usize, String> {
        self.addresses.get(&(owner.to_owned(), field.to_owned())).copied().ok_or_else(|| format!("{owner}::{field}"))
    }

    pub fn size(&self, name: &str) -> Result<usize, String> {
        self.sizes.get(name).copied().ok_or_else(|| format!("the size of {name}"))
    }

    pub fn constant(&self, name: &str) -> Option<i32> {
        self.constants.get(name).copied()
    }
}

fn entries(first: usize, stride: usize) -> impl Iterator<Item = usize> {
    (0..MAX_ENTRIES).map(move |index| first + index * stride)
}

/// A C string of the VM; `None` for the null pointer and the empty string that end a table.
fn text(address: usize) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_NAME_BYTES {
        let part = word(address.checked_add(bytes.len())?)?.to_ne_bytes();
        bytes.extend_from_slice(&part);
        if part.contains(&0) {
            break;
        }
    }
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?;
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_at_its_nul_and_an_empty_one_ends_the_table() {
        let words = c"ConstMethod::_constants".to_bytes_with_nul().to_vec();
        let padded: Vec<u8> = words.into_iter().chain([7; 16]).collect();
        assert_eq!(text(padded.as_ptr() as usize).as_deref(), Some("ConstMethod::_constants"));
        assert_eq!(text([0u64; 2].as_ptr() as usize), None);
        assert_eq!(text(0), None);
    }

    #[test]
    fn a_library_without_vm_structs_is_not_hotspot() {
        let library = VmLibrary::of(libc::getenv as *const () as usize).expect("the C library is loaded");
        assert!(VmStructs::read(&library).is_none());
    }
}
