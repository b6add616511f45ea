//! The functions in stacks of the heap profile. V8's allocation profiles name them, so their frames refer to this table instead
//! of code addresses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use spanprof_signal::RawFrame;

use crate::positions::names::CodeName;
use crate::runtime::walk::synthetic_frame;

/// Maximum number of functions; further ones share one name.
const MAX_FUNCTIONS: usize = 65_536;

/// Code id of the first function: above all other synthetic frames.
const FIRST_CODE: u64 = synthetic_frame::CODE + 1;

/// A function, and the number of its script for the source map; 0 when unknown.
#[derive(Clone)]
pub struct AllocatingFunction {
    pub name: Arc<CodeName>,
    pub script: u32,
}

#[derive(Default)]
struct AllocatingFunctions {
    list: Vec<AllocatingFunction>,
    numbers: HashMap<Arc<CodeName>, usize>,
}

fn table() -> MutexGuard<'static, AllocatingFunctions> {
    static TABLE: OnceLock<Mutex<AllocatingFunctions>> = OnceLock::new();
    // Held by either side for one lookup only.
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn frame_of(function: AllocatingFunction) -> RawFrame {
    let mut table = table();
    if let Some(number) = table.numbers.get(&function.name).copied() {
        // The latest script of this name: an earlier one may have ended.
        table.list[number].script = function.script;
        return frame(number);
    }
    let number = table.list.len();
    let function = match number >= MAX_FUNCTIONS {
        false => function,
        true if number > MAX_FUNCTIONS => return frame(MAX_FUNCTIONS),
        true => {
            let function = "(other functions)".into();
            let name = CodeName { function, file: "".into(), start_line: 0, start_column: 0, is_script: false };
            AllocatingFunction { name: name.into(), script: 0 }
        }
    };
    table.numbers.insert(function.name.clone(), number);
    table.list.push(function);
    frame(number)
}

fn frame(number: usize) -> RawFrame {
    RawFrame { code: FIRST_CODE + number as u64, at: 0 }
}

/// The function of a frame; `None` for a frame of another kind.
pub fn function_of(frame: RawFrame) -> Option<AllocatingFunction> {
    let number = frame.code.checked_sub(FIRST_CODE)?;
    table().list.get(usize::try_from(number).ok()?).cloned()
}
