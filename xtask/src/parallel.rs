//! Work on several items at the same time, where most of it waits. Called by verbs.

use crate::progress;
use crate::step::{StepFailure, StepResult};

/// Does `work` for each item on a thread of its own, with lines that begin with the item's `label`. The results are in the order of
/// the items. Processes of [`crate::step::ProcessStep::start`] end with their thread.
pub fn side_by_side<I: Sync, T: Send>(
    items: &[I],
    label: impl Fn(&I) -> &'static str,
    work: impl Fn(&I) -> StepResult<T> + Sync,
) -> Vec<StepResult<T>> {
    let work = &work;
    std::thread::scope(|threads| {
        let start = |item| {
            let label = label(item);
            (label, threads.spawn(move || progress::labeled(label, || work(item))))
        };
        let started: Vec<_> = items.iter().map(start).collect();
        let panicked = |label| Err(StepFailure::new(label, "panicked; the message is above"));
        started.into_iter().map(|(label, thread)| thread.join().unwrap_or_else(|_| panicked(label))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_and_a_panic_is_a_failure() {
        let label = |item: &u64| if *item == 0 { "zero" } else { "other" };
        let results = side_by_side(&[20, 0, 1], label, |item| {
            std::thread::sleep(std::time::Duration::from_millis(*item));
            Ok(100 / item)
        });
        let text =
            |result: StepResult<u64>| result.map_or_else(|failure| failure.to_string(), |value| value.to_string());
        let results: Vec<_> = results.into_iter().map(text).collect();
        assert_eq!(results, ["5", "step `zero`: panicked; the message is above", "100"]);
    }
}
