//! Labels of the calling thread without a scope. The end of an enclosing scope removes them.

use std::cell::RefCell;

use spanprof_aggregate::context::{
    context_row, extend_labels, labels_of, open_context, pin_context, with_labels, ContextRow, LabelSetId,
    PinnedContext,
};
use spanprof_os::thread_context;

thread_local! {
    /// The context that this module opened last on the thread.
    static PIN: RefCell<PinnedContext> = RefCell::new(PinnedContext::default());
}

/// Adds a label to the calling thread.
pub(super) fn add(key: &str, value: &str) {
    change(|row| with_labels(row, &[(key, value)]));
}

/// Removes a label that has this value.
pub(super) fn remove(key: &str, value: &str) {
    change(|row| {
        let labels = labels_of(row.label_set);
        let kept = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let kept: Vec<_> = kept.filter(|label| *label != (key, value)).collect();
        ContextRow { label_set: extend_labels(LabelSetId::EMPTY, &kept), ..row }
    });
}

fn change(changed: impl FnOnce(ContextRow) -> ContextRow) {
    let row = context_row(thread_context::current()).unwrap_or_default();
    let id = open_context(changed(row));
    let pin = pin_context(id);
    thread_context::replace_current(id);
    // During destruction of the thread's storage the row is not pinned: it may expire.
    _ = PIN.try_with(|last| drop(last.replace(pin)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<(String, String)> {
        labels_of(context_row(thread_context::current()).unwrap_or_default().label_set)
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_tag_stays_until_it_is_removed_with_its_value_and_is_of_one_thread() {
        std::thread::spawn(|| {
            add("route", "/cart");
            add("tenant", "a");
            assert_eq!(labels(), [pair("route", "/cart"), pair("tenant", "a")]);
            std::thread::spawn(|| assert!(labels().is_empty())).join().unwrap();
            remove("tenant", "b");
            remove("route", "/cart");
            assert_eq!(labels(), [pair("tenant", "a")]);
            crate::api::labels::tag_wrapper([("inner", "i")], || {
                assert_eq!(labels(), [pair("inner", "i"), pair("tenant", "a")])
            });
            remove("tenant", "a");
            assert!(labels().is_empty());
        })
        .join()
        .unwrap();
    }
}
