//! Functions that exist when a worker thread starts. There are thousands of them, and most are in no sample: the code map takes one
//! when a sample or an event refers to it. Owned by the code map; pure.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use super::retired_code::NO_END;
use crate::positions::LineTable;

/// A function of Node.js, shared by all workers, as is its script.
#[derive(Debug)]
pub struct KnownFunction {
    /// Its name as V8 logs it.
    pub logged: Box<str>,
    /// Size of its bytecode.
    pub len: usize,
    pub lines: Arc<LineTable>,
}

/// Such a function in one worker.
#[derive(Debug)]
pub struct ExistingFunction {
    /// Address of the first bytecode.
    pub start: usize,
    /// Number of its script; 0 when unknown.
    pub script: u32,
    pub known: Arc<KnownFunction>,
}

/// A function that the code map takes.
pub struct TakenFunction {
    pub isolate: usize,
    pub start: usize,
    pub script: u32,
    pub known: Arc<KnownFunction>,
    pub map_word: Option<NonZeroU64>,
    pub added_at: u64,
    pub ended_at: u64,
}

struct Worker {
    isolate: usize,
    /// Sorted by address.
    functions: Vec<ExistingFunction>,
    is_taken: Vec<bool>,
    /// As in a code object, for all of them.
    map_word: Option<NonZeroU64>,
    added_at: u64,
    ended_at: u64,
}

/// The functions that existed when each worker thread began.
#[derive(Default)]
pub struct ExistingCode(Vec<Worker>);

impl ExistingCode {
    pub fn add(
        &mut self,
        isolate: usize,
        mut functions: Vec<ExistingFunction>,
        map_word: Option<NonZeroU64>,
        added_at: u64,
    ) {
        functions.sort_unstable_by_key(|function| function.start);
        let is_taken = vec![false; functions.len()];
        self.0.push(Worker { isolate, functions, is_taken, map_word, added_at, ended_at: NO_END });
    }

    /// Takes the functions of a running worker that overlap `range`.
    pub fn take_overlapping(&mut self, isolate: usize, range: &Range<usize>) -> Vec<TakenFunction> {
        let mut workers = self.0.iter_mut().filter(|worker| worker.isolate == isolate && worker.ended_at == NO_END);
        workers.next().map(|worker| worker.take_overlapping(range)).unwrap_or_default()
    }

    /// Takes the function at `address` when the ring was at `position`.
    pub fn take_at(&mut self, address: usize, position: u64) -> Option<TakenFunction> {
        let mut workers = self.0.iter_mut().filter(|worker| (worker.added_at..worker.ended_at).contains(&position));
        workers.find_map(|worker| worker.take_overlapping(&(address..address + 1)).pop())
    }

    /// Takes the functions of a script in one isolate.
    pub fn take_script(&mut self, isolate: usize, script: u32) -> Vec<TakenFunction> {
        let workers = self.0.iter_mut().filter(|worker| worker.isolate == isolate);
        workers.flat_map(|worker| worker.take_script(script)).collect()
    }

    pub fn scripts(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|worker| worker.functions.iter().map(|function| function.script))
    }

    /// The worker ends; its functions stay until its samples are resolved.
    pub fn end(&mut self, isolate: usize, position: u64) {
        let running = self.0.iter_mut().filter(|worker| worker.isolate == isolate && worker.ended_at == NO_END);
        running.for_each(|worker| worker.ended_at = position);
    }

    pub fn expire(&mut self, resolved_up_to: u64) {
        self.0.retain(|worker| worker.ended_at > resolved_up_to);
    }

    /// Another ring is in use.
    pub fn reset_positions(&mut self) {
        self.0.retain(|worker| worker.ended_at == NO_END);
        self.0.iter_mut().for_each(|worker| worker.added_at = 0);
    }
}

impl Worker {
    fn take_overlapping(&mut self, range: &Range<usize>) -> Vec<TakenFunction> {
        let after = self.functions.partition_point(|function| function.start < range.end);
        let end = |function: &ExistingFunction| function.start + function.known.len;
        let before = self.functions[..after].iter().rposition(|function| end(function) <= range.start);
        let first = before.map_or(0, |index| index + 1);
        (first..after).rev().filter_map(|index| self.take(index)).collect()
    }

    fn take_script(&mut self, script: u32) -> Vec<TakenFunction> {
        let mut taken = Vec::new();
        for index in 0..self.functions.len() {
            if self.functions[index].script == script {
                taken.extend(self.take(index));
            }
        }
        taken
    }

    fn take(&mut self, index: usize) -> Option<TakenFunction> {
        let function = self.functions.get(index)?;
        let is_taken = std::mem::replace(self.is_taken.get_mut(index)?, true);
        (!is_taken).then(|| TakenFunction {
            isolate: self.isolate,
            start: function.start,
            script: function.script,
            known: function.known.clone(),
            map_word: self.map_word,
            added_at: self.added_at,
            ended_at: self.ended_at,
        })
    }
}
