//! The opener: a small library in the JAR that unpacks the large one. It has the native methods of `io.spanprof.Opener`.
//! Unpacking with the JDK would take half of a first start. Not here: locating and loading the libraries
//! (`NativeLibrary.java`, the only caller).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use jni::objects::{JByteArray, JClass, JObject};
use jni::sys::jint;
use jni::{jni_sig, jni_str, Env, EnvUnowned, Outcome};
use lz4_flex::frame::FrameDecoder;
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::io::Errno;
use spanprof_signal::probe;

/// Buffer size for reads.
const BUFFER_BYTES: usize = 64 * 1024;

/// The in-memory file, open until the VM has loaded it. Each class loader has its own copy of this library, and loads one
/// library at a time.
static IN_MEMORY: Mutex<Option<File>> = Mutex::new(None);

/// Unpacks a stream into an in-memory file. Returns the file descriptor, which is valid until [`close`]; −1 if that is not
/// possible. Exceptions of the stream are thrown.
///
/// [`close`]: Java_io_spanprof_Opener_close
#[no_mangle]
pub extern "system" fn Java_io_spanprof_Opener_toMemory<'l>(
    env: EnvUnowned<'l>,
    _class: JClass<'l>,
    packed: JObject<'l>,
) -> jint {
    ffi_guard(env, |env| {
        let packed = Stream::of(env, &packed)?;
        let unpacked = memory().and_then(|mut file| unpack(packed, &mut file).map(|()| file));
        Ok(unpacked.map_or(-1, |file| {
            let descriptor = file.as_raw_fd();
            store(Some(file));
            descriptor
        }))
    })
    .unwrap_or(-1)
}

/// Closes the file of the last [`Java_io_spanprof_Opener_toMemory`]; the loaded library stays mapped.
#[no_mangle]
pub extern "system" fn Java_io_spanprof_Opener_close(_env: EnvUnowned<'_>, _class: JClass<'_>) {
    store(None);
}

/// Unpacks a stream into a new file; the path is in the file system's encoding. Returns null on success, else the error
/// message. Exceptions of the stream are thrown.
#[no_mangle]
pub extern "system" fn Java_io_spanprof_Opener_toFile<'l>(
    env: EnvUnowned<'l>,
    _class: JClass<'l>,
    packed: JObject<'l>,
    path: JByteArray<'l>,
) -> JByteArray<'l> {
    ffi_guard(env, |env| {
        let path = env.convert_byte_array(&path)?;
        let packed = Stream::of(env, &packed)?;
        match File::create_new(OsStr::from_bytes(&path)).and_then(|mut file| unpack(packed, &mut file)) {
            Err(error) if !env.exception_check() => env.byte_array_from_slice(error.to_string().as_bytes()),
            _ => Ok(JByteArray::default()),
        }
    })
    .unwrap_or_default()
}

/// A `java.io.InputStream`, read through one array: the whole library is never in the Java heap.
struct Stream<'a, 'l> {
    env: &'a mut Env<'l>,
    stream: &'a JObject<'l>,
    array: JByteArray<'l>,
}

impl<'a, 'l> Stream<'a, 'l> {
    fn of(env: &'a mut Env<'l>, stream: &'a JObject<'l>) -> jni::errors::Result<BufReader<Self>> {
        let array = env.new_byte_array(BUFFER_BYTES)?;
        Ok(BufReader::with_capacity(BUFFER_BYTES, Self { env, stream, array }))
    }

    fn next(&mut self, into: &mut [u8]) -> jni::errors::Result<usize> {
        let max_bytes = into.len().min(BUFFER_BYTES) as jint;
        let read = [(&self.array).into(), 0.into(), max_bytes.into()];
        let read_bytes = self.env.call_method(self.stream, jni_str!("read"), jni_sig!("([BII)I"), &read)?;
        // At its end a stream returns −1.
        let mut signed = vec![0; read_bytes.i()?.clamp(0, max_bytes) as usize];
        self.array.get_region(self.env, 0, &mut signed)?;
        into.iter_mut().zip(&signed).for_each(|(to, from)| *to = *from as u8);
        Ok(signed.len())
    }
}

impl Read for Stream<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.next(into).map_err(io::Error::other)
    }
}

/// Runs a native method; `None` if a JNI call failed or it panicked.
fn ffi_guard<'l, T>(mut env: EnvUnowned<'l>, body: impl FnOnce(&mut Env<'l>) -> jni::errors::Result<T>) -> Option<T> {
    match env.with_env(body).into_outcome() {
        Outcome::Ok(value) => Some(value),
        _ => None,
    }
}

fn store(file: Option<File>) {
    *IN_MEMORY.lock().unwrap_or_else(PoisonError::into_inner) = file;
}

/// Creates an executable in-memory file.
fn memory() -> io::Result<File> {
    if probe::is_filtered() && probe::surviving(&[&[libc::SYS_memfd_create]]) == 0 {
        return Err(io::Error::other("the seccomp filter ends processes that call memfd_create"));
    }
    let create = |flags| memfd_create("libspanprof_java.so", flags);
    // Before Linux 6.3 all in-memory files are executable, and the flag is unknown.
    let created = create(MemfdFlags::CLOEXEC | MemfdFlags::EXEC).or_else(|error| match error {
        Errno::INVAL => create(MemfdFlags::CLOEXEC),
        other => Err(other),
    });
    Ok(File::from(created?))
}

/// Unpacks an LZ4 frame. Its content size detects truncation; it also has a checksum.
fn unpack(mut packed: impl BufRead, to: &mut impl Write) -> io::Result<()> {
    let expected =
        content_size(packed.fill_buf()?).ok_or_else(|| io::Error::other("not an LZ4 frame with a content size"))?;
    let mut blocks = FrameDecoder::new(packed);
    let mut written = 0;
    loop {
        let block = blocks.fill_buf()?;
        if block.is_empty() {
            break;
        }
        to.write_all(block)?;
        let length = block.len();
        blocks.consume(length);
        written += length as u64;
    }
    if written == expected {
        Ok(())
    } else {
        Err(io::Error::other(format!("truncated: {written} of {expected} bytes")))
    }
}

/// The content size, if the frame descriptor has it (LZ4 frame format 1.6, "Frame Descriptor").
fn content_size(head: &[u8]) -> Option<u64> {
    const HAS_CONTENT_SIZE: u8 = 1 << 3;
    let has_size = head.get(4)? & HAS_CONTENT_SIZE != 0;
    let length = head.get(6..14)?.try_into().ok().map(u64::from_le_bytes)?;
    has_size.then_some(length)
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    use super::*;

    /// Data with occasional repetitions, like a library; several blocks.
    fn library() -> Vec<u8> {
        (0..700_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> (n % 29)).to_le_bytes()).collect()
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let info = FrameInfo::new()
            .block_mode(BlockMode::Linked)
            .block_size(BlockSize::Max64KB)
            .content_size(Some(bytes.len() as u64))
            .content_checksum(true);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn an_in_memory_file_has_the_packed_content() {
        let mut file = memory().unwrap();
        unpack(&packed(&library())[..], &mut file).unwrap();
        let mut content = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        assert!(content == library());
        let target = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert_eq!(target.to_str(), Some("/memfd:libspanprof_java.so (deleted)"));
    }

    /// Ends of all blocks but the last: a reader that checks blocks only does not detect truncation there.
    fn ends_of_blocks(frame: &[u8]) -> Vec<usize> {
        let length_at = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap()) & !(1 << 31);
        let mut ends = vec![15];
        while length_at(ends[ends.len() - 1]) != 0 {
            let begin = ends[ends.len() - 1];
            ends.push(begin + 4 + length_at(begin) as usize);
        }
        ends.pop();
        assert!(ends.len() > 10, "{ends:?}");
        ends
    }

    #[test]
    fn truncated_or_damaged_input_is_an_error() {
        let whole = packed(&library());
        for length in ends_of_blocks(&whole).into_iter().chain([0, 3, 4, 7, 14, 100, whole.len() / 2]) {
            assert!(unpack(&whole[..length], &mut Vec::new()).is_err(), "{length} of {}", whole.len());
        }
        for at in [0, 5, 20, whole.len() / 3, whole.len() - 2] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            assert!(unpack(&damaged[..], &mut Vec::new()).is_err(), "a bit of byte {at}");
        }
    }
}
