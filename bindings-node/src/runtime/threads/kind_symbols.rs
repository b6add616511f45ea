//! Looks up the functions by which the handler classifies threads without JavaScript (`walk::thread_kind`).

use crate::runtime::v8::lookup;
use crate::runtime::walk::thread_kind;

/// Looks up the neighboring symbols. Outside handlers.
pub fn look_up() {
    let address = |name| lookup::symbol(&[name]) as usize;
    thread_kind::set_neighbors(
        address(c"uv_queue_work"),
        address(c"_ZN4node23WorkerThreadsTaskRunner13BlockingDrainEv"),
    );
}
