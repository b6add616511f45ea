//! An acquisition and a release of a free lock of `spanprof::sync`, beside those of the standard library. Prints the median
//! of paired rounds. Run with `cargo bench -p spanprof --bench locks`.

use std::hint::black_box;

use spanprof_os::current_thread_cpu_ns;

const ROUNDS: usize = 101;
const CALLS: u32 = 100_000;

fn measure(mut call: impl FnMut()) -> f64 {
    // CPU time is independent of other load on the machine.
    let begun = current_thread_cpu_ns();
    for _ in 0..CALLS {
        call();
    }
    (current_thread_cpu_ns() - begun) as f64 / f64::from(CALLS)
}

fn compare(name: &str, mut plain: impl FnMut(), mut measured: impl FnMut()) {
    let mut rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [measure(&mut plain), measure(&mut measured)]).collect();
    rounds.sort_by(|one, other| (one[1] / one[0]).total_cmp(&(other[1] / other[0])));
    let [plain_ns, measured_ns] = rounds[ROUNDS / 2];
    println!(
        "{name:<28} {plain_ns:>6.1} ns {measured_ns:>6.1} ns   ratio {:.2}   budget ≤ 1.3",
        measured_ns / plain_ns
    );
}

fn main() {
    let (plain, measured) = (std::sync::Mutex::new(0u64), spanprof::sync::Mutex::new(0u64));
    compare("Mutex::lock", || *black_box(&plain).lock().unwrap() += 1, || *black_box(&measured).lock().unwrap() += 1);
    compare(
        "Mutex::try_lock",
        || *black_box(&plain).try_lock().unwrap() += 1,
        || *black_box(&measured).try_lock().unwrap() += 1,
    );
    let (plain, measured) = (std::sync::RwLock::new(7u64), spanprof::sync::RwLock::new(7u64));
    compare(
        "RwLock::read",
        || assert_eq!(*black_box(&plain).read().unwrap(), 7),
        || assert_eq!(*black_box(&measured).read().unwrap(), 7),
    );
    compare(
        "RwLock::write",
        || *black_box(&plain).write().unwrap() += 1,
        || *black_box(&measured).write().unwrap() += 1,
    );
}
