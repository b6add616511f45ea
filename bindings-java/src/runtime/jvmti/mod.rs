//! JVMTI: the functions that the binding calls, by their index in the function table, and the events that it uses. Not for
//! signal handlers. Not here: event handlers (`callbacks`), and class queries
//! (`classes`).

pub mod boot_class;
mod classes;
pub mod this_vm;

use std::ffi::{c_char, c_void};

use jni::sys::{jclass, jint, jlong, jobject, JNIEnv, JavaVM, JNI_OK};

/// JVMTI 1.0, which every VM supports.
const INTERFACE_VERSION: jint = 0x3001_0000;
/// Functions in the table of Java 8; later versions have more.
const FUNCTIONS: usize = 155;
/// The number of `SetHeapSamplingInterval`, in the tables from Java 11 on.
const SET_HEAP_SAMPLING_INTERVAL: usize = 156;

/// A JVMTI environment: a pointer to its function table.
#[repr(C)]
pub struct Environment {
    functions: *const [usize; FUNCTIONS],
}

/// A JVMTI environment of this VM. A copy is the same environment.
#[derive(Clone, Copy)]
pub struct Jvmti(pub(super) *mut Environment);

// SAFETY: an environment may be used from any thread of the VM.
unsafe impl Send for Jvmti {}
// SAFETY: an environment may be used by several threads of the VM at once.
unsafe impl Sync for Jvmti {}

/// Events by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum JvmtiEvent {
    VmInit = 50,
    VmDeath = 51,
    ThreadStart = 52,
    ThreadEnd = 53,
    ClassLoad = 55,
    ClassPrepare = 56,
    DynamicCodeGenerated = 70,
    MonitorContendedEnter = 75,
    MonitorContendedEntered = 76,
    GarbageCollectionStart = 81,
    GarbageCollectionFinish = 82,
    SampledObjectAlloc = 86,
    /// From Java 21 on.
    VirtualThreadStart = 87,
    VirtualThreadEnd = 88,
}

/// An extension event, which only some VMs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionEvent(jint);

/// Called with the environments and the virtual thread.
pub type OnMount = unsafe extern "C" fn(*mut Environment, *mut JNIEnv, jobject);

/// `jvmtiExtensionEventInfo`.
#[repr(C)]
struct ExtensionInfo {
    index: jint,
    id: *const c_char,
    description: *const c_char,
    parameters: jint,
    parameter_infos: *const c_void,
}

/// Bit indexes in `jvmtiCapabilities`.
pub(super) const CAN_REPORT_MONITORS: usize = 28;
pub(super) const CAN_REPORT_COLLECTIONS: usize = 31;
pub(super) const CAN_SAMPLE_ALLOCATIONS: usize = 43;
pub(super) const CAN_SUPPORT_VIRTUAL_THREADS: usize = 44;

const FIRST_EVENT: usize = 50;
const EVENTS: usize = 40;

/// `jvmtiEventCallbacks`; the VM keeps a copy.
#[repr(C)]
pub struct Callbacks([usize; EVENTS]);

/// Called with the environment, at a safepoint: the callback may call neither JNI nor most of JVMTI.
pub type OnCollection = unsafe extern "system" fn(*mut Environment);

/// Called with the environments and the thread.
pub type OnThread = unsafe extern "system" fn(*mut Environment, *mut JNIEnv, jobject);

/// Called with the environments, the thread and an object.
pub type OnMonitor = unsafe extern "system" fn(*mut Environment, *mut JNIEnv, jobject, jobject);

/// `VMDeath`, called with the environments.
pub type OnEnd = unsafe extern "system" fn(*mut Environment, *mut JNIEnv);

/// Called with the environments, the thread and a class.
pub type OnClass = unsafe extern "system" fn(*mut Environment, *mut JNIEnv, jobject, jobject);

/// Called with the environment, a name, and the address and length of the code.
pub type OnCode = unsafe extern "system" fn(*mut Environment, *const c_char, *const c_void, jint);

/// Called with the environments, the thread, an object, its class and its size in bytes.
pub type OnAllocation = unsafe extern "system" fn(*mut Environment, *mut JNIEnv, jobject, jobject, jclass, jlong);

impl Callbacks {
    pub fn none() -> Self {
        Self([0; EVENTS])
    }

    pub fn on_thread(&mut self, event: JvmtiEvent, callback: OnThread) {
        self.set(event, callback as usize);
    }

    pub fn on_end(&mut self, callback: OnEnd) {
        self.set(JvmtiEvent::VmDeath, callback as usize);
    }

    pub fn on_class(&mut self, event: JvmtiEvent, callback: OnClass) {
        self.set(event, callback as usize);
    }

    pub fn on_code(&mut self, callback: OnCode) {
        self.set(JvmtiEvent::DynamicCodeGenerated, callback as usize);
    }

    pub fn on_allocation(&mut self, callback: OnAllocation) {
        self.set(JvmtiEvent::SampledObjectAlloc, callback as usize);
    }

    pub fn on_monitor(&mut self, event: JvmtiEvent, callback: OnMonitor) {
        self.set(event, callback as usize);
    }

    pub fn on_collection(&mut self, event: JvmtiEvent, callback: OnCollection) {
        self.set(event, callback as usize);
    }

    fn set(&mut self, event: JvmtiEvent, callback: usize) {
        if let Some(slot) = self.0.get_mut(event as usize - FIRST_EVENT) {
            *slot = callback;
        }
    }
}

pub(super) fn ok(error: jint) -> Result<(), String> {
    match error {
        JNI_OK => Ok(()),
        error => Err(format!("JVMTI error {error}")),
    }
}

/// Text of the VM, in modified UTF-8 (JVM specification, 4.4.7): characters beyond the basic plane are surrogate pairs of six
/// bytes. Lone surrogates are replaced.
pub fn decode(text: &[u8]) -> String {
    simd_cesu8::mutf8::decode_lossy(text).into_owned()
}

/// The feature version of Java for a major version of JVMTI, which is equal from 9 on. Java 8 and older have 1.
fn feature_version(jvmti: u32, specification: impl FnOnce() -> Option<String>) -> Result<u32, String> {
    if jvmti >= 9 {
        return Ok(jvmti);
    }
    match specification() {
        Some(version) if version == "1.8" => Ok(8),
        version => {
            let version = version.unwrap_or_else(|| "of unknown version".to_owned());
            Err(format!("it runs on Java {version}, and spanprof needs Java 8 or later; start it with a later Java"))
        }
    }
}

impl Jvmti {
    /// An environment of this VM.
    ///
    /// # Safety
    /// `vm` is the running VM.
    pub unsafe fn of(vm: *mut JavaVM) -> Result<Self, String> {
        let mut environment: *mut c_void = std::ptr::null_mut();
        // SAFETY: guaranteed by the caller; writes one pointer to a local.
        let outcome = unsafe { ((**vm).v1_2.GetEnv)(vm, &mut environment, INTERFACE_VERSION) };
        if outcome != JNI_OK || environment.is_null() {
            return Err(format!("the VM has no JVMTI (error {outcome})"));
        }
        Ok(Self(environment.cast()))
    }

    /// The function with this number in the table, which counts from 1.
    pub(super) fn function(self, number: usize) -> usize {
        // SAFETY: an environment lives as long as the VM and begins with its table.
        let functions = unsafe { &*(*self.0).functions };
        functions.get(number - 1).copied().unwrap_or(0)
    }

    /// The feature version of Java, from 8 on.
    pub fn java_version(self) -> Result<u32, String> {
        let mut version = 0;
        // SAFETY: function 88 is GetVersionNumber(env, jint*).
        let call: unsafe extern "system" fn(*mut Environment, *mut jint) -> jint =
            unsafe { std::mem::transmute(self.function(88)) };
        // SAFETY: writes one number to a local.
        ok(unsafe { call(self.0, &mut version) })?;
        feature_version(version as u32 >> 16 & 0xfff, || self.property(c"java.vm.specification.version"))
    }

    pub fn set_callbacks(self, callbacks: &Callbacks) -> Result<(), String> {
        // SAFETY: function 122 is SetEventCallbacks(env, callbacks, size).
        let call: unsafe extern "system" fn(*mut Environment, *const Callbacks, jint) -> jint =
            unsafe { std::mem::transmute(self.function(122)) };
        // SAFETY: the VM copies the table, whose size is passed.
        ok(unsafe { call(self.0, callbacks, size_of::<Callbacks>() as jint) })
    }

    /// Turns an event on or off for all threads.
    pub fn notify(self, event: JvmtiEvent, on: bool) -> Result<(), String> {
        self.notify_number(event as jint, on)
    }

    /// As `notify`, for events of virtual threads; fails before Java 21.
    pub fn notify_virtual_threads(self, event: JvmtiEvent, on: bool) -> Result<(), String> {
        self.add_capability(CAN_SUPPORT_VIRTUAL_THREADS)?;
        self.notify(event, on)
    }

    fn notify_number(self, event: jint, on: bool) -> Result<(), String> {
        // SAFETY: function 2 is SetEventNotificationMode(env, mode, event, thread, ...).
        let call: unsafe extern "C" fn(*mut Environment, jint, jint, jobject, ...) -> jint =
            unsafe { std::mem::transmute(self.function(2)) };
        // SAFETY: null means all threads.
        ok(unsafe { call(self.0, jint::from(on), event, std::ptr::null_mut()) })
    }

    /// Repeats the events that occurred before an event was turned on.
    pub fn generate_events(self, event: JvmtiEvent) -> Result<(), String> {
        // SAFETY: function 123 is GenerateEvents(env, event).
        let call: unsafe extern "system" fn(*mut Environment, jint) -> jint =
            unsafe { std::mem::transmute(self.function(123)) };
        // SAFETY: the environment belongs to the profiler.
        ok(unsafe { call(self.0, event as jint) })
    }

    /// Calls `visit` with each live platform thread; the references are deleted afterwards.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment.
    pub unsafe fn each_thread(self, env: *mut JNIEnv, mut visit: impl FnMut(jobject)) -> Result<(), String> {
        let (mut count, mut threads): (jint, *mut jobject) = (0, std::ptr::null_mut());
        // SAFETY: function 4 is GetAllThreads(env, jint*, jthread**).
        let call: unsafe extern "system" fn(*mut Environment, *mut jint, *mut *mut jobject) -> jint =
            unsafe { std::mem::transmute(self.function(4)) };
        // SAFETY: writes a number and a pointer to locals.
        ok(unsafe { call(self.0, &mut count, &mut threads) })?;
        for index in 0..count.max(0) as usize {
            // SAFETY: the list has `count` local references.
            let thread = unsafe { *threads.add(index) };
            visit(thread);
            // SAFETY: a local reference of this thread, used no more.
            unsafe { ((**env).v1_1.DeleteLocalRef)(env, thread) };
        }
        self.free(threads.cast());
        Ok(())
    }

    /// A local reference to the calling thread, which may be virtual.
    pub fn current_thread(self) -> Option<jobject> {
        let mut thread: jobject = std::ptr::null_mut();
        // SAFETY: function 18 is GetCurrentThread(env, jthread*).
        let call: unsafe extern "system" fn(*mut Environment, *mut jobject) -> jint =
            unsafe { std::mem::transmute(self.function(18)) };
        // SAFETY: writes one reference to a local.
        ok(unsafe { call(self.0, &mut thread) }).ok()?;
        (!thread.is_null()).then_some(thread)
    }

    /// The thread-local word of a thread, or of the calling one (null); 0 if there is none.
    pub fn thread_local_storage(self, thread: jobject) -> Option<usize> {
        let mut word: *mut c_void = std::ptr::null_mut();
        // SAFETY: function 102 is GetThreadLocalStorage(env, thread, void**).
        let call: unsafe extern "system" fn(*mut Environment, jobject, *mut *mut c_void) -> jint =
            unsafe { std::mem::transmute(self.function(102)) };
        // SAFETY: null or a live reference to a thread; writes one pointer to a local.
        ok(unsafe { call(self.0, thread, &mut word) }).ok().map(|()| word as usize)
    }

    /// Sets the thread-local word of the calling thread, virtual or not.
    pub fn set_thread_local_storage(self, word: usize) -> Result<(), String> {
        // SAFETY: function 103 is SetThreadLocalStorage(env, thread, const void*).
        let call: unsafe extern "system" fn(*mut Environment, jobject, *const c_void) -> jint =
            unsafe { std::mem::transmute(self.function(103)) };
        // SAFETY: null means the calling thread; the VM only stores the word.
        ok(unsafe { call(self.0, std::ptr::null_mut(), word as *const c_void) })
    }

    /// Registers callbacks for mounts and unmounts of virtual threads; `None` if the VM lacks these events. They stay off
    /// until `notify_extension`.
    pub fn register_mount_callbacks(self, mount: OnMount, unmount: OnMount) -> Option<[ExtensionEvent; 2]> {
        self.add_capability(CAN_SUPPORT_VIRTUAL_THREADS).ok()?;
        let events = self.extension_events().ok()?;
        let named = |name: &str| events.iter().find(|(id, _)| id.ends_with(name)).map(|(_, event)| *event);
        let events = [named(".VirtualThreadMount")?, named(".VirtualThreadUnmount")?];
        for (event, callback) in events.iter().zip([mount, unmount]) {
            // SAFETY: function 126 is SetExtensionEventCallback(env, index, callback).
            let call: unsafe extern "system" fn(*mut Environment, jint, usize) -> jint =
                unsafe { std::mem::transmute(self.function(126)) };
            // SAFETY: these events pass the JVMTI environment, the JNI environment and the thread, as the callback
            // declares.
            ok(unsafe { call(self.0, event.0, callback as usize) }).ok()?;
        }
        Some(events)
    }

    /// Turns an extension event on or off.
    pub fn notify_extension(self, event: ExtensionEvent, on: bool) -> Result<(), String> {
        self.notify_number(event.0, on)
    }

    /// Requests a capability. Some can belong to one environment at a time only.
    pub(super) fn add_capability(self, bit: usize) -> Result<(), String> {
        self.change_capability(142, bit)
    }

    /// Gives a capability up: another environment can have it then.
    pub(super) fn relinquish_capability(self, bit: usize) -> Result<(), String> {
        self.change_capability(143, bit)
    }

    fn change_capability(self, function: usize, bit: usize) -> Result<(), String> {
        let mut capabilities = [0u32; 4];
        capabilities[bit / 32] = 1 << (bit % 32);
        // SAFETY: functions 142 and 143 are AddCapabilities and RelinquishCapabilities(env, const capabilities*), whose
        // structure has 128 bits.
        let call: unsafe extern "system" fn(*mut Environment, *const [u32; 4]) -> jint =
            unsafe { std::mem::transmute(self.function(function)) };
        // SAFETY: reads a local.
        ok(unsafe { call(self.0, &capabilities) })
    }

    /// Sets the mean interval of sampled allocations in bytes, for the whole VM. A thread uses it from its next sample on.
    /// Only with the capability for it, which the VM has from Java 11 on.
    pub fn set_heap_sampling_interval(self, bytes: jint) -> Result<(), String> {
        // SAFETY: an environment lives as long as the VM and begins with its table, which has 156 functions from Java 11 on.
        let function = unsafe { (*self.0).functions.cast::<usize>().add(SET_HEAP_SAMPLING_INTERVAL - 1).read() };
        // SAFETY: function 156 is SetHeapSamplingInterval(env, jint).
        let call: unsafe extern "system" fn(*mut Environment, jint) -> jint = unsafe { std::mem::transmute(function) };
        // SAFETY: passes a number; the VM checks it and the capability.
        ok(unsafe { call(self.0, bytes) })
    }

    /// The calling thread's stack, at most `max_frames`, leaf first: method ids and bytecode indexes (negative: unknown).
    pub fn stack_trace(self, max_frames: usize) -> Result<Vec<(usize, i64)>, String> {
        /// `jvmtiFrameInfo`.
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct FrameInfo {
            method: usize,
            location: i64,
        }
        type GetStackTrace =
            unsafe extern "system" fn(*mut Environment, jobject, jint, jint, *mut FrameInfo, *mut jint) -> jint;
        let mut frames = vec![FrameInfo { method: 0, location: 0 }; max_frames];
        let mut count = 0;
        // SAFETY: function 104 is GetStackTrace(env, thread, start, max, frames, count*).
        let call: GetStackTrace = unsafe { std::mem::transmute(self.function(104)) };
        // SAFETY: null means the calling thread; the VM writes at most `max_frames` entries and the count.
        ok(unsafe { call(self.0, std::ptr::null_mut(), 0, max_frames as jint, frames.as_mut_ptr(), &mut count) })?;
        Ok(frames.iter().take(count.max(0) as usize).map(|frame| (frame.method, frame.location)).collect())
    }

    fn extension_events(self) -> Result<Vec<(String, ExtensionEvent)>, String> {
        let (mut count, mut infos): (jint, *mut ExtensionInfo) = (0, std::ptr::null_mut());
        // SAFETY: function 125 is GetExtensionEvents(env, jint*, info**).
        let call: unsafe extern "system" fn(*mut Environment, *mut jint, *mut *mut ExtensionInfo) -> jint =
            unsafe { std::mem::transmute(self.function(125)) };
        // SAFETY: writes a number and a pointer to locals.
        ok(unsafe { call(self.0, &mut count, &mut infos) })?;
        let mut events = Vec::new();
        for index in 0..count.max(0) as usize {
            // SAFETY: the list has `count` entries, each with a NUL-terminated string.
            let (id, number) = unsafe {
                let info = &*infos.add(index);
                (std::ffi::CStr::from_ptr(info.id).to_string_lossy().into_owned(), info.index)
            };
            events.push((id, ExtensionEvent(number)));
        }
        // The strings inside are leaked: a few hundred bytes, once per process.
        self.free(infos.cast());
        Ok(events)
    }

    pub(super) fn free(self, memory: *mut c_char) {
        // SAFETY: function 47 is Deallocate(env, memory).
        let call: unsafe extern "system" fn(*mut Environment, *mut c_char) -> jint =
            unsafe { std::mem::transmute(self.function(47)) };
        // SAFETY: memory that JVMTI allocated, used no more.
        unsafe { call(self.0, memory) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_8_is_the_oldest_version() {
        let version = |jvmti, specification: &str| feature_version(jvmti, || Some(specification.to_owned()));
        assert_eq!([version(1, "1.8"), version(11, "11"), version(25, "25")], [Ok(8), Ok(11), Ok(25)]);
        assert!(version(1, "1.7").unwrap_err().contains("Java 1.7, and spanprof needs Java 8"));
        assert!(feature_version(1, || None).is_err());
    }

    #[test]
    fn modified_utf_8_decodes_beyond_the_basic_plane_and_lossily() {
        for (bytes, expected) in [
            (&b"burn"[..], "burn"),
            ("数学_мир".as_bytes(), "数学_мир"),
            (b"\xed\xa0\xb5\xed\xb2\xb3burn", "𝒳burn"),
            (b"a\xc0\x80b", "a\0b"),
            ("𝒳".as_bytes(), "𝒳"),
        ] {
            assert_eq!(decode(bytes), expected);
        }
        for lone in [&b"x\xed\xa0\xb5y"[..], b"x\xed\xb2\xb3y", b"x\xffy", b"x\xed\xa0"] {
            let text = decode(lone);
            assert!(
                text.starts_with('x') && text.contains('\u{fffd}') && text.ends_with('y') == lone.ends_with(b"y"),
                "{text}"
            );
        }
    }
}
