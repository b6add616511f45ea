//! The table in which HotSpot describes its own structures: where fields lie, what sizes and constants are. Read once, on
//! a normal thread. What the fields mean is `layout`'s business.

use std::collections::HashMap;
use std::ffi::{c_void, CStr, CString};

use super::memory_signal::{int, word};

/// Names in the table are shorter than this.
const MAX_NAME_BYTES: usize = 256;
/// The table is shorter than this.
const MAX_ENTRIES: usize = 20_000;

/// The VM's library, for its symbols.
pub struct Library(*mut c_void);

impl Library {
    /// The library that holds `address`.
    pub fn of(address: usize) -> Option<Self> {
        // SAFETY: an all-zero Dl_info is a valid value to be written over.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: dladdr only compares the address with the loaded objects.
        if unsafe { libc::dladdr(address as *const c_void, &mut found) } == 0 || found.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the path came from the linker; RTLD_NOLOAD loads nothing new.
        let handle = unsafe { libc::dlopen(found.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// Where an exported function or variable lies.
    pub fn symbol(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open and the name ends in NUL.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found as usize)
    }

    /// The word that an exported variable holds.
    fn variable(&self, name: &str) -> Option<usize> {
        word(self.symbol(name)?)
    }
}

/// See the head of the module.
#[derive(Default)]
pub struct Structures {
    offsets: HashMap<(String, String), usize>,
    addresses: HashMap<(String, String), usize>,
    sizes: HashMap<String, usize>,
    constants: HashMap<String, i32>,
}

impl Structures {
    /// Reads the table; `None` when this VM has none.
    pub fn read(library: &Library) -> Option<Self> {
        let mut found = Self::default();
        found.read_fields(library)?;
        let (first, stride) = (library.variable("gHotSpotVMTypes")?, "gHotSpotVMTypeEntry");
        let at = |what: &str| library.variable(&format!("{stride}{what}"));
        let (stride, name, size) = (at("ArrayStride")?, at("TypeNameOffset")?, at("SizeOffset")?);
        for entry in entries(first, stride) {
            let Some(name) = text(word(entry + name)?) else { break };
            found.sizes.insert(name, word(entry + size)?);
        }
        let (first, stride) = (library.variable("gHotSpotVMIntConstants")?, "gHotSpotVMIntConstantEntry");
        let at = |what: &str| library.variable(&format!("{stride}{what}"));
        let (stride, name, value) = (at("ArrayStride")?, at("NameOffset")?, at("ValueOffset")?);
        for entry in entries(first, stride) {
            let Some(name) = text(word(entry + name)?) else { break };
            found.constants.insert(name, int(entry + value)?);
        }
        Some(found)
    }

    fn read_fields(&mut self, library: &Library) -> Option<()> {
        let first = library.variable("gHotSpotVMStructs")?;
        let at = |what: &str| library.variable(&format!("gHotSpotVMStructEntry{what}"));
        let (stride, owner, field) = (at("ArrayStride")?, at("TypeNameOffset")?, at("FieldNameOffset")?);
        let (is_static, offset, address) = (at("IsStaticOffset")?, at("OffsetOffset")?, at("AddressOffset")?);
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

    /// The offset of `Owner::field`; what is missing is said as such.
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

/// A text of the VM's; `None` for the null pointer and the empty text that end the table.
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
    fn a_text_ends_at_its_nul_and_an_empty_one_ends_the_table() {
        let words = c"ConstMethod::_constants".to_bytes_with_nul().to_vec();
        let padded: Vec<u8> = words.into_iter().chain([7; 16]).collect();
        assert_eq!(text(padded.as_ptr() as usize).as_deref(), Some("ConstMethod::_constants"));
        assert_eq!(text([0u64; 2].as_ptr() as usize), None);
        assert_eq!(text(0), None);
    }

    #[test]
    fn a_library_without_the_table_is_not_this_vm() {
        let library = Library::of(libc::getenv as *const () as usize).expect("the C library is loaded");
        assert!(Structures::read(&library).is_none());
    }
}
