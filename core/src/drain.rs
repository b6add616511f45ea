//! Ring → resolved samples → open window. Runs on the drain thread, or in `stop` when no drain thread is left. Not here:
//! when to run (`profiler`), what a window becomes (`window`).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::context::{sampled_context_row, ContextRow, LabelSetId, Link};
use crate::locations::LocationTable;
use crate::runtime::{Ended, Runtime};
use crate::stacks::{RawStackAt, StackLosses, StackTable};
use crate::stats::Counters;
use crate::window::{ResolvedSample, Window};
use spanprof_signal::{Context, DropReason, RawSample, Ring, SampleFlags};

/// Words of the ring taken before a look at how full the window is.
const PART_WORDS: u64 = 32_768;

/// See the head of the module.
pub(crate) struct Drain {
    runtime: Arc<dyn Runtime>,
    pub locations: LocationTable,
    pub stacks: StackTable,
    ended: VecDeque<Ended>,
    ended_scratch: Vec<Ended>,
    losses: StackLosses,
    max_stacks: u32,
}

impl Drain {
    pub fn new(runtime: Arc<dyn Runtime>, max_stacks: u32) -> Self {
        Self {
            runtime,
            locations: LocationTable::default(),
            stacks: StackTable::default(),
            ended: VecDeque::new(),
            ended_scratch: Vec::new(),
            losses: StackLosses::default(),
            max_stacks,
        }
    }

    pub fn set_max_stacks(&mut self, max_stacks: u32) {
        self.max_stacks = max_stacks;
    }

    /// Takes what was committed so far below the position `up_to` into `window`; stops early when the window is full. True
    /// when there may be more.
    pub fn drain(&mut self, ring: &Ring, up_to: u64, window: &mut Window, counters: &Counters) -> bool {
        // The head first: code that ended before an entry below it was reserved is then among what `ended` tells.
        let head = ring.head().min(up_to);
        self.ask_ended();
        loop {
            // In parts, so that a full ring does not overfill the window.
            let part = head.min(ring.tail() + PART_WORDS);
            let samples = ring.drain(part, &mut |position, sample| self.take(position, &sample, window, counters));
            let done = samples == 0 || ring.tail() >= head;
            if done || window.is_full() {
                self.apply_ended(ring.tail());
                return !done;
            }
        }
    }

    /// Asks the runtime what ended. Before the samples up to a head that was read earlier are taken.
    pub fn ask_ended(&mut self) {
        self.ended_scratch.clear();
        self.runtime.ended(&mut self.ended_scratch);
        let in_order = self.ended_scratch.windows(2).all(|pair| pair[0].position <= pair[1].position);
        if !in_order {
            self.ended_scratch.sort_by_key(|ended| ended.position);
        }
        // Threads tell late of what ended early: it must not wait behind what others told of.
        let first = self.ended_scratch.first().map_or(u64::MAX, |ended| ended.position);
        let is_late = self.ended.back().is_some_and(|ended| ended.position > first);
        self.ended.extend(self.ended_scratch.drain(..));
        if is_late {
            self.ended.make_contiguous().sort_by_key(|ended| ended.position);
        }
    }

    /// Takes one sample that stood at `position`.
    pub fn take(&mut self, position: u64, sample: &RawSample<'_>, window: &mut Window, counters: &Counters) {
        self.apply_ended(position);
        let truncated = sample.flags.has(SampleFlags::TRUNCATED);
        let before = self.losses;
        let stack = self.stacks.stack(
            RawStackAt { frames: sample.frames, truncated, position },
            self.max_stacks,
            &mut self.locations,
            &*self.runtime,
            &mut self.losses,
        );
        counters.frames_code_ended.add(self.losses.unnamed_frames - before.unnamed_frames);
        counters.dropped_too_many_stacks.add(self.losses.too_many_stacks - before.too_many_stacks);
        counters.stacks_truncated.add(u64::from(truncated));
        let row = context_of(&sample.context).unwrap_or_else(|| {
            counters.contexts_expired.add(1);
            ContextRow::default()
        });
        window.add(ResolvedSample { sample, stack, label_set: row.label_set, link: row.link }, counters);
    }

    /// The stack of a sample that has none: its reason.
    pub fn reason_stack(&mut self, reason: DropReason) -> crate::stacks::StackIndex {
        self.stacks.reason(reason, &mut self.locations)
    }

    /// To be called when no open window holds an id of ours.
    pub fn between_windows(&mut self) {
        self.stacks.clear();
        if self.locations.is_half_full() {
            self.locations.forget_all();
        } else {
            self.locations.forget_native();
        }
    }

    /// Forgets what ended at or before `position`: a sample there means other code.
    fn apply_ended(&mut self, position: u64) {
        let mut seen = false;
        while self.ended.front().is_some_and(|ended| ended.position <= position) {
            if let Some(ended) = self.ended.pop_front() {
                seen |= self.locations.code_ended(ended.code);
            }
        }
        if seen {
            self.stacks.forget_raw();
        }
    }
}

/// The row of a sample's context; `None` when it expired.
fn context_of(context: &Context) -> Option<ContextRow> {
    match context {
        Context::None => Some(ContextRow::default()),
        Context::Id(id) => sampled_context_row(*id),
        Context::Inline(inline) => Some(ContextRow {
            label_set: LabelSetId(inline.label_set),
            link: Link { trace_id: inline.trace_id, span_id: inline.span_id },
            local_root_span_id: inline.local_root_span_id,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeRuntime;
    use spanprof_signal::RawFrame;

    #[test]
    fn code_of_which_a_thread_tells_late_is_forgotten_at_its_end_and_not_behind_what_ended_later() {
        let runtime = FakeRuntime::new();
        let [early, late] = ["early", "late"].map(|name| runtime.define(name, "a.fake", 1));
        let mut drain = Drain::new(runtime.clone(), 16);
        let name_of = |drain: &mut Drain, code, position| {
            drain.apply_ended(position);
            let location = drain.locations.location(RawFrame { code, at: 0 }, position, &*runtime, &mut 0);
            drain.locations.frames(location.unwrap())[0].function.to_string()
        };
        assert_eq!(name_of(&mut drain, early, 10), "early");
        runtime.end(late, 900, None);
        drain.ask_ended();
        runtime.end(early, 20, Some("reborn"));
        drain.ask_ended();
        assert_eq!([19, 20].map(|position| name_of(&mut drain, early, position)), ["early", "reborn"]);
        assert_eq!([899, 900].map(|position| name_of(&mut drain, late, position)), ["late", "[code_ended]"]);
    }
}
