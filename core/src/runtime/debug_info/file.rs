//! The file that has the debug information of a loaded object: the object itself, or one that belongs to it by build id, debug
//! link, or as the package of its split debug information (GDB manual, "Separate Debug Files").

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::ZlibDecoder;
use gimli::{Dwarf, DwarfPackage, DwoId, EndianSlice};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{CompressedData, CompressionFormat, Endianness, Object, ObjectSection};
use ruzstd::decoding::StreamingDecoder;

use super::Slice;
use spanprof_os::MappedFile;

/// Directory of separate debug files.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

type Elf = ElfFile64<'static, Endianness>;

/// The mapped files and DWARF sections of one loaded object.
pub(super) struct DebugFile {
    mapped: Vec<MappedFile>,
    pub dwarf: Dwarf<Slice>,
    package: Option<DwarfPackage<Slice>>,
    /// The files with one split unit each, which are mapped once.
    split_files: HashMap<PathBuf, Option<Arc<Dwarf<Slice>>>>,
    /// The address in the file of the object's first byte in memory.
    pub first_address: u64,
}

impl DebugFile {
    /// The debug information of the object in the file `content`. Files that belong to it are beside `path`.
    pub fn open(content: &Path, path: &Path) -> Option<Self> {
        let mut mapped = Vec::new();
        let object = map(content, &mut mapped)?;
        let first_address = first_address(&object);
        let separate = separate_file(&object, path);
        let debug_object = separate.and_then(|path| map(&path, &mut mapped));
        let mut dwarf = load(debug_object.as_ref().unwrap_or(&object), |id| Some(id.name()))?;
        if let Some(supplementary) = debug_object.as_ref().and_then(|object| supplementary_file(object, &mut mapped)) {
            dwarf.set_sup(load(&supplementary, |id| Some(id.name()))?);
        }
        let package = map(&package_path(path), &mut mapped).and_then(|object| {
            let section = |id: gimli::SectionId| Ok::<_, gimli::Error>(section(&object, id.dwo_name()));
            DwarfPackage::load(section, empty()).ok()
        });
        Some(Self { mapped, dwarf, package, split_files: HashMap::new(), first_address })
    }

    /// The sections that contain the split unit `id`: those of the package, or of the file at `path`.
    pub fn split(&mut self, id: DwoId, path: PathBuf) -> Option<Arc<Dwarf<Slice>>> {
        if let Some(packed) = self.package.as_ref().and_then(|package| package.find_cu(id, &self.dwarf).ok()?) {
            return Some(Arc::new(packed));
        }
        if let Some(file) = self.split_files.get(&path) {
            return file.clone();
        }
        let dwarf = map(&path, &mut self.mapped).and_then(|object| {
            let mut dwarf = load(&object, gimli::SectionId::dwo_name)?;
            dwarf.make_dwo(&self.dwarf);
            Some(Arc::new(dwarf))
        });
        self.split_files.insert(path, dwarf.clone());
        dwarf
    }

    /// Removes the files' pages from resident memory.
    pub fn release_pages(&self) {
        self.mapped.iter().for_each(|file| file.release_pages());
    }
}

fn map(path: &Path, mapped: &mut Vec<MappedFile>) -> Option<Elf> {
    let file = MappedFile::open(path)?;
    mapped.push(file);
    Elf::parse(file.bytes()).ok()
}

fn empty() -> Slice {
    EndianSlice::new(&[], gimli::LittleEndian)
}

fn load(object: &Elf, name: impl Fn(gimli::SectionId) -> Option<&'static str>) -> Option<Dwarf<Slice>> {
    Dwarf::load(|id| Ok::<_, gimli::Error>(section(object, name(id)))).ok()
}

/// The content of a section; empty without it. Compressed sections are unpacked into memory that is never freed.
fn section(object: &Elf, name: Option<&str>) -> Slice {
    let content = || {
        let compressed = object.section_by_name(name?)?.compressed_data().ok()?;
        match compressed.format {
            CompressionFormat::None => Some(compressed.data),
            _ => unpacked(&compressed).map(|unpacked| &*unpacked.leak()),
        }
    };
    EndianSlice::new(content().unwrap_or_default(), gimli::LittleEndian)
}

/// A section that was packed with zlib or zstd (ELF gABI, `ELFCOMPRESS_ZLIB` and `ELFCOMPRESS_ZSTD`).
fn unpacked(section: &CompressedData<'static>) -> Option<Vec<u8>> {
    let limit = section.uncompressed_size;
    let mut unpacked = Vec::new();
    // The size is that of the file's header: a damaged file must not end the program.
    unpacked.try_reserve_exact(usize::try_from(limit).ok()?).ok()?;
    let mut packed = section.data;
    match section.format {
        CompressionFormat::Zlib => _ = ZlibDecoder::new(packed).take(limit).read_to_end(&mut unpacked).ok()?,
        CompressionFormat::Zstandard => {
            // Linkers with several threads write several frames.
            while !packed.is_empty() {
                let left = limit.checked_sub(unpacked.len() as u64)?;
                StreamingDecoder::new(&mut packed).ok()?.take(left + 1).read_to_end(&mut unpacked).ok()?;
            }
        }
        _ => return None,
    }
    (unpacked.len() as u64 == limit).then_some(unpacked)
}

fn first_address(object: &Elf) -> u64 {
    let (endian, headers) = (object.endian(), object.elf_program_headers());
    let loaded = headers.iter().filter(|header| header.p_type(endian) == object::elf::PT_LOAD);
    loaded.map(|header| header.p_vaddr(endian)).min().map_or(0, |address| address & !4095)
}

/// The separate file with the debug information of the object at `path`.
fn separate_file(object: &Elf, path: &Path) -> Option<PathBuf> {
    let by_build_id = object.build_id().ok().flatten().and_then(build_id_path);
    by_build_id.or_else(|| {
        let (name, _) = object.gnu_debuglink().ok()??;
        let (path, name) = (path.canonicalize().ok()?, Path::new(OsStr::from_bytes(name)));
        let directory = path.parent()?;
        let below = Path::new(DEBUG_DIRECTORY).join(directory.strip_prefix("/").ok()?);
        let candidates = [directory.join(name), directory.join(".debug").join(name), below.join(name)];
        candidates.into_iter().find(|candidate| *candidate != path && candidate.is_file())
    })
}

/// The file that `dwz` moved common parts to.
fn supplementary_file(object: &Elf, mapped: &mut Vec<MappedFile>) -> Option<Elf> {
    let (_, build_id) = object.gnu_debugaltlink().ok()??;
    let supplementary = map(&build_id_path(build_id)?, mapped)?;
    (supplementary.build_id().ok()? == Some(build_id)).then_some(supplementary)
}

fn build_id_path(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let path = format!("{DEBUG_DIRECTORY}/.build-id/{first:02x}/{}.debug", hex::encode(rest));
    Some(PathBuf::from(path)).filter(|path| path.is_file())
}

/// `program` has `program.dwp`, `library.so` has `library.so.dwp`.
fn package_path(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".dwp");
    PathBuf::from(path)
}
