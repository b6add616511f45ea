//! The VM's tool interface: the few functions that we call, by their place in its table, and the events that we take.
//! Normal threads only. Not here: what the events mean (`java_threads`, `stub_names`, `method_ids`), and what is asked of
//! classes (`class_calls`).

use std::ffi::{c_char, c_void};

use jni::sys::{jint, jobject, JNIEnv, JavaVM, JNI_OK};

/// Version 3 of the interface: every VM from Java 11 on has it.
const INTERFACE_VERSION: jint = 0x3001_0000;
/// Functions of the table that a VM of Java 11 has; later ones have more.
const FUNCTIONS: usize = 155;

/// An environment of ours: a pointer to its table.
#[repr(C)]
pub struct Environment {
    functions: *const [usize; FUNCTIONS],
}

/// See the head of the module. A copy is the same environment.
#[derive(Clone, Copy)]
pub struct Jvmti(pub(super) *mut Environment);

// SAFETY: an environment may be used from any thread of the VM.
unsafe impl Send for Jvmti {}
// SAFETY: as above.
unsafe impl Sync for Jvmti {}

/// Events by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Event {
    VmInit = 50,
    VmDeath = 51,
    ThreadStart = 52,
    ThreadEnd = 53,
    ClassLoad = 55,
    ClassPrepare = 56,
    DynamicCodeGenerated = 70,
    /// From Java 21 on.
    VirtualThreadStart = 87,
    VirtualThreadEnd = 88,
}

/// An event that only some VMs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionEvent(jint);

/// Called with the environments and the virtual thread.
pub type OnMount = unsafe extern "C" fn(*mut Environment, *mut JNIEnv, jobject);

/// The VM's description of such an event.
#[repr(C)]
struct ExtensionInfo {
    index: jint,
    id: *const c_char,
    description: *const c_char,
    parameters: jint,
    parameter_infos: *const c_void,
}

/// By its place in the structure of capabilities.
const CAN_SUPPORT_VIRTUAL_THREADS: usize = 44;

const FIRST_EVENT: usize = 50;
const EVENTS: usize = 40;

/// What the VM calls; the VM keeps a copy.
#[repr(C)]
pub struct Callbacks([usize; EVENTS]);

/// Called with the environments and the thread.
pub type OnThread = unsafe extern "system" fn(*mut Environment, *mut JNIEnv, jobject);

/// Called with the environments: the VM ends.
pub type OnEnd = unsafe extern "system" fn(*mut Environment, *mut JNIEnv);

/// Called with the environments, the thread and a class.
pub type OnClass = unsafe extern "system" fn(*mut Environment, *mut JNIEnv, jobject, jobject);

/// Called with the environment, a name, and where code of that name lies and how long it is.
pub type OnCode = unsafe extern "system" fn(*mut Environment, *const c_char, *const c_void, jint);

impl Callbacks {
    pub fn none() -> Self {
        Self([0; EVENTS])
    }

    pub fn on_thread(&mut self, event: Event, callback: OnThread) {
        self.set(event, callback as usize);
    }

    pub fn on_end(&mut self, callback: OnEnd) {
        self.set(Event::VmDeath, callback as usize);
    }

    pub fn on_class(&mut self, event: Event, callback: OnClass) {
        self.set(event, callback as usize);
    }

    pub fn on_code(&mut self, callback: OnCode) {
        self.set(Event::DynamicCodeGenerated, callback as usize);
    }

    fn set(&mut self, event: Event, callback: usize) {
        if let Some(place) = self.0.get_mut(event as usize - FIRST_EVENT) {
            *place = callback;
        }
    }
}

pub(super) fn ok(error: jint) -> Result<(), String> {
    match error {
        JNI_OK => Ok(()),
        error => Err(format!("the tool interface gave error {error}")),
    }
}

impl Jvmti {
    /// An environment of this VM.
    ///
    /// # Safety
    /// `vm` is the running VM.
    pub unsafe fn of(vm: *mut JavaVM) -> Result<Self, String> {
        let mut environment: *mut c_void = std::ptr::null_mut();
        // SAFETY: the caller's promise; writes one pointer to a local.
        let outcome = unsafe { ((**vm).v1_2.GetEnv)(vm, &mut environment, INTERFACE_VERSION) };
        if outcome != JNI_OK || environment.is_null() {
            return Err(format!("the VM has no tool interface (error {outcome})"));
        }
        Ok(Self(environment.cast()))
    }

    /// The function with this number in the interface's table, which counts from 1.
    pub(super) fn function(self, number: usize) -> usize {
        // SAFETY: an environment lives as long as the VM and begins with its table.
        let functions = unsafe { &*(*self.0).functions };
        functions.get(number - 1).copied().unwrap_or(0)
    }

    /// Version of Java, as its feature number.
    pub fn java_version(self) -> Result<u32, String> {
        let mut version = 0;
        // SAFETY: function 88 is GetVersionNumber(env, jint*).
        let call: unsafe extern "system" fn(*mut Environment, *mut jint) -> jint =
            unsafe { std::mem::transmute(self.function(88)) };
        // SAFETY: writes one number to a local.
        ok(unsafe { call(self.0, &mut version) })?;
        Ok(version as u32 >> 16 & 0xfff)
    }

    pub fn set_callbacks(self, callbacks: &Callbacks) -> Result<(), String> {
        // SAFETY: function 122 is SetEventCallbacks(env, callbacks, size).
        let call: unsafe extern "system" fn(*mut Environment, *const Callbacks, jint) -> jint =
            unsafe { std::mem::transmute(self.function(122)) };
        // SAFETY: the VM copies the table, whose size it is told.
        ok(unsafe { call(self.0, callbacks, size_of::<Callbacks>() as jint) })
    }

    /// Turns an event on or off, for every thread.
    pub fn notify(self, event: Event, on: bool) -> Result<(), String> {
        self.notify_number(event as jint, on)
    }

    /// As `notify`, for what virtual threads alone do; fails before Java 21.
    pub fn notify_virtual_threads(self, event: Event, on: bool) -> Result<(), String> {
        self.add_capability(CAN_SUPPORT_VIRTUAL_THREADS)?;
        self.notify(event, on)
    }

    fn notify_number(self, event: jint, on: bool) -> Result<(), String> {
        // SAFETY: function 2 is SetEventNotificationMode(env, mode, event, thread, ...).
        let call: unsafe extern "C" fn(*mut Environment, jint, jint, jobject, ...) -> jint =
            unsafe { std::mem::transmute(self.function(2)) };
        // SAFETY: no thread means all threads.
        ok(unsafe { call(self.0, jint::from(on), event, std::ptr::null_mut()) })
    }

    /// Tells of everything that an event would have told of before it was turned on.
    pub fn tell_again(self, event: Event) -> Result<(), String> {
        // SAFETY: function 123 is GenerateEvents(env, event).
        let call: unsafe extern "system" fn(*mut Environment, jint) -> jint =
            unsafe { std::mem::transmute(self.function(123)) };
        // SAFETY: the environment is ours.
        ok(unsafe { call(self.0, event as jint) })
    }

    /// Calls `visit` with each live platform thread; the references end with this call.
    ///
    /// # Safety
    /// `env` is the calling thread's.
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

    /// The word kept with a thread, or with the calling one (null); 0 when there is none.
    pub fn thread_word(self, thread: jobject) -> Option<usize> {
        let mut word: *mut c_void = std::ptr::null_mut();
        // SAFETY: function 102 is GetThreadLocalStorage(env, thread, void**).
        let call: unsafe extern "system" fn(*mut Environment, jobject, *mut *mut c_void) -> jint =
            unsafe { std::mem::transmute(self.function(102)) };
        // SAFETY: null or a live reference to a thread; writes one pointer to a local.
        ok(unsafe { call(self.0, thread, &mut word) }).ok().map(|()| word as usize)
    }

    /// Keeps a word with the calling thread, virtual or not.
    pub fn set_thread_word(self, word: usize) -> Result<(), String> {
        // SAFETY: function 103 is SetThreadLocalStorage(env, thread, const void*).
        let call: unsafe extern "system" fn(*mut Environment, jobject, *const c_void) -> jint =
            unsafe { std::mem::transmute(self.function(103)) };
        // SAFETY: no thread means the calling one; the VM only keeps the word.
        ok(unsafe { call(self.0, std::ptr::null_mut(), word as *const c_void) })
    }

    /// Asks to be told of mounts and unmounts of virtual threads; `None` where the VM does not tell of them. Nothing is
    /// told before `notify_extension`.
    pub fn follow_virtual_threads(self, mount: OnMount, unmount: OnMount) -> Option<[ExtensionEvent; 2]> {
        self.add_capability(CAN_SUPPORT_VIRTUAL_THREADS).ok()?;
        let events = self.extension_events().ok()?;
        let named = |name: &str| events.iter().find(|(id, _)| id.ends_with(name)).map(|(_, event)| *event);
        let found = [named(".VirtualThreadMount")?, named(".VirtualThreadUnmount")?];
        for (event, callback) in found.iter().zip([mount, unmount]) {
            // SAFETY: function 126 is SetExtensionEventCallback(env, index, callback).
            let call: unsafe extern "system" fn(*mut Environment, jint, usize) -> jint =
                unsafe { std::mem::transmute(self.function(126)) };
            // SAFETY: the VM passes these events environment, JNI environment and thread, as the callback takes them.
            ok(unsafe { call(self.0, event.0, callback as usize) }).ok()?;
        }
        Some(found)
    }

    /// Turns one of those events on or off.
    pub fn notify_extension(self, event: ExtensionEvent, on: bool) -> Result<(), String> {
        self.notify_number(event.0, on)
    }

    pub(super) fn add_capability(self, bit: usize) -> Result<(), String> {
        let mut wanted = [0u32; 4];
        wanted[bit / 32] = 1 << (bit % 32);
        // SAFETY: function 142 is AddCapabilities(env, const capabilities*), whose structure has 128 bits.
        let call: unsafe extern "system" fn(*mut Environment, *const [u32; 4]) -> jint =
            unsafe { std::mem::transmute(self.function(142)) };
        // SAFETY: reads a local.
        ok(unsafe { call(self.0, &wanted) })
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
            // SAFETY: the list has `count` entries, each with a text that ends in NUL.
            let (id, number) = unsafe {
                let info = &*infos.add(index);
                (std::ffi::CStr::from_ptr(info.id).to_string_lossy().into_owned(), info.index)
            };
            events.push((id, ExtensionEvent(number)));
        }
        // The texts inside stay: a few hundred bytes, once per process.
        self.free(infos.cast());
        Ok(events)
    }

    pub(super) fn free(self, memory: *mut c_char) {
        // SAFETY: function 47 is Deallocate(env, memory).
        let call: unsafe extern "system" fn(*mut Environment, *mut c_char) -> jint =
            unsafe { std::mem::transmute(self.function(47)) };
        // SAFETY: memory that the interface gave, used no more.
        unsafe { call(self.0, memory) };
    }
}
