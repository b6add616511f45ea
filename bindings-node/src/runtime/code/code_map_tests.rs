//! Tests of the code map: resolution by address and position, and eviction.

use spanprof_os::current_thread_cpu_ns;

use super::*;
use crate::positions::TABLE_ENCODINGS;
use crate::runtime::code::existing_code::KnownFunction;

/// The initial ring of a new map.
const RING: usize = 0;

fn added(position: u64, start: usize, name: &str) -> CodeEvent {
    CodeEvent {
        ring: RING,
        position,
        isolate: 1,
        change: CodeChange::Added {
            start,
            len: 100,
            logged: name.into(),
            kind: CodeKind::Other,
            script: 0,
            inlining: None,
            map_word: None,
        },
    }
}

fn bytecode(position: u64, start: usize, name: &str) -> CodeEvent {
    let mut event = added(position, start, name);
    if let CodeChange::Added { kind, script, map_word, .. } = &mut event.change {
        (*kind, *script, *map_word) = (CodeKind::Bytecode, start as u32, NonZeroU64::new(7));
    }
    event
}

/// The line table of bytecode, with these bytes.
fn table(position: u64, start: usize, bytes: usize) -> CodeEvent {
    let copy = |buffer: &mut [u8]| {
        buffer.copy_from_slice(&bytes.to_le_bytes());
        true
    };
    let bytes = SmallBytes::read(size_of_val(&bytes), copy).unwrap();
    let change = CodeChange::Table { start, len: 100, encoding: TABLE_ENCODINGS[0], bytes };
    CodeEvent { ring: RING, position, isolate: 1, change }
}

#[test]
fn functions_from_one_template_share_their_line_table() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for (start, bytes) in [(1024, 7), (2048, 7), (4096, 8)] {
        map.apply(table(1, start, bytes), &mut ended);
        map.apply(bytecode(1, start, "JS:~made :1:1"), &mut ended);
    }
    let lines = [1024, 2048, 4096].map(|start| map.find(start, 1).map(|code| Arc::as_ptr(&code.lines)).unwrap());
    assert!(lines[0] == lines[1] && lines[0] != lines[2]);
}

#[test]
fn code_whose_memory_was_reused_is_dropped_with_its_name_and_its_script() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(0, 1 << 40, "Builtin:machine"), &mut ended);
    let churn = 50 * MIN_NEW_BEFORE_SWEEP;
    let (mut most, mut position) = (0, 0);
    for number in 1..=churn {
        position = number as u64;
        let info = Box::new(ScriptInfo::default());
        let change = CodeChange::Script { number: number as u32 * 128, info };
        map.apply(CodeEvent { ring: RING, position, isolate: 1, change }, &mut ended);
        map.apply(table(position, number * 128, number), &mut ended);
        map.apply(bytecode(position, number * 128, &format!("JS:~made{number} :1:1")), &mut ended);
        if number % 500 == 0 {
            // Other objects replace all but the last hundred; machine code has new contents at its address.
            let is_new = |code: &CodeObject| code.map_word.is_none() || code.start / 128 + 100 > number;
            map.sweep(&is_new, &|| position, &mut ended);
            map.begin_drain(RING, position);
            most = most.max(map.len());
        }
    }
    assert!(most < 3 * MIN_NEW_BEFORE_SWEEP, "{most} code objects at once");
    assert!(map.names.len() < 4 * MIN_NEW_BEFORE_SWEEP, "{} names", map.names.len());
    assert!(map.tables.len() < 4 * MIN_NEW_BEFORE_SWEEP, "{} tables", map.tables.len());
    assert!(map.scripts.len() < 4 * MIN_NEW_BEFORE_SWEEP, "{} scripts", map.scripts.len());
    assert!(map.bytes() < 4 * MIN_NEW_BEFORE_SWEEP * crate::runtime::code::code_object::CODE_BYTES);
    assert!(map.codes_forgotten as usize > churn - 3 * MIN_NEW_BEFORE_SWEEP);
    assert_eq!(name_at(&map, churn * 128, position), Some(&*format!("made{churn}")));
    assert_eq!(name_at(&map, (1 << 40) + 6, position), Some("machine"));
}

#[test]
fn code_that_moves_during_a_sweep_is_not_dropped() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for number in 1..=MIN_NEW_BEFORE_SWEEP {
        map.apply(bytecode(1, number * 128, "JS:~f /a.js:1:1"), &mut ended);
    }
    map.sweep(&|code| code.start != 128, &|| 5, &mut ended);
    let change = CodeChange::Moved { from: 128, to: 1 << 30, keeps_old_address: false };
    map.apply(CodeEvent { ring: RING, position: 4, isolate: 1, change }, &mut ended);
    map.sweep(&|_| true, &|| 6, &mut ended);
    assert_eq!((map.len(), map.codes_forgotten), (MIN_NEW_BEFORE_SWEEP, 0));
    assert_eq!(name_at(&map, 1 << 30, 6), Some("f"));
}

#[test]
fn a_sample_older_than_the_sweep_that_missed_its_code_is_still_resolved() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    (1..=MIN_NEW_BEFORE_SWEEP).for_each(|number| map.apply(bytecode(1, number * 128, "JS:~f /a.js:1:1"), &mut ended));
    map.sweep(&|code| code.start != 128, &|| 9, &mut ended);
    map.sweep(&|_| false, &|| 10, &mut ended);
    assert_eq!(map.codes_forgotten, 1);
    assert_eq!((name_at(&map, 130, 8), name_at(&map, 130, 9)), (Some("f"), None));
}

#[test]
fn unlisted_code_has_the_name_of_its_functions_bytecode() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(bytecode(3, 1280, "JS:~looping /a.js:3:9"), &mut ended);
    let unlisted = |start, bytecode, isolate| {
        let change = CodeChange::Unlisted { start, len: 100, bytecode, kind: CodeKind::Optimized, inlining: None };
        CodeEvent { ring: RING, position: 3, isolate, change }
    };
    for event in [unlisted(1 << 30, 1280, 1), unlisted(1 << 31, 1281, 1), unlisted(1 << 32, 1280, 2)] {
        map.apply(event, &mut ended);
    }
    let code = map.find((1 << 30) + 50, 3).unwrap();
    assert_eq!((&*code.name.function, code.kind, code.script), ("looping", CodeKind::Optimized, 1280));
    assert_eq!([1 << 31, 1 << 32].map(|start| name_at(&map, start, 3)), [None, None], "no such function");
    // V8 compiles other code in the same memory.
    map.apply(added(9, (1 << 30) + 64, "JS:*next /a.js:5:1"), &mut ended);
    assert_eq!([8, 9].map(|position| name_at(&map, (1 << 30) + 70, position)), [Some("looping"), Some("next")]);
}

fn name_at(map: &CodeMap, address: usize, position: u64) -> Option<&str> {
    map.find(address, position).map(|code| &*code.name.function)
}

#[test]
fn an_address_is_resolved_to_the_code_at_the_samples_position() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(10, 5000, "Builtin:first"), &mut ended);
    assert!(ended.is_empty(), "code in unused memory ends nothing");
    map.apply(added(20, 5050, "Builtin:second"), &mut ended);
    assert_eq!(ended, [EndedCode { code: 4096, position: 20 }]);
    assert_eq!(name_at(&map, 5060, 15), Some("first"));
    assert_eq!(name_at(&map, 5060, 20), Some("second"));
    assert_eq!(name_at(&map, 5060, 5), None, "before it was added");
    assert_eq!(name_at(&map, 5020, 25), None, "the rest of the first is gone too");
}

#[test]
fn live_code_is_found_at_any_position_of_another_ring() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(900, 8192, "Builtin:old"), &mut ended);
    map.begin_drain(RING + 1, 0);
    assert_eq!(name_at(&map, 8200, 3), Some("old"));
}

#[test]
fn events_of_another_ring_count_as_before_all_positions_of_the_current_one() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.begin_drain(RING + 1, 0);
    map.apply(added(900, 8192, "Builtin:listed_meanwhile"), &mut ended);
    assert_eq!(name_at(&map, 8200, 3), Some("listed_meanwhile"));
    map.apply(added(900, 8192, "Builtin:next"), &mut ended);
    assert_eq!(ended, [EndedCode { code: 8192, position: 0 }]);
    assert_eq!(name_at(&map, 8200, 3), Some("next"));
}

#[test]
fn moved_code_is_found_at_both_addresses_at_the_respective_positions() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(1, 8192, "Builtin:mover"), &mut ended);
    let change = CodeChange::Moved { from: 8192, to: 90_000, keeps_old_address: false };
    map.apply(CodeEvent { ring: RING, position: 7, isolate: 1, change }, &mut ended);
    assert_eq!((name_at(&map, 8200, 6), name_at(&map, 8200, 7)), (Some("mover"), None));
    assert_eq!((name_at(&map, 90_010, 6), name_at(&map, 90_010, 7)), (None, Some("mover")));
}

#[test]
fn code_of_an_ended_isolate_is_resolved_until_its_samples_are_however_often_the_drain_wakes() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.begin_drain(RING, 1);
    map.apply(added(1, 8192, "RegExp:gone"), &mut ended);
    map.apply(CodeEvent { ring: RING, position: 5, isolate: 1, change: CodeChange::IsolateCleared }, &mut ended);
    assert_eq!(map.len(), 0);
    // An uncommitted sample blocks all later samples, and each new one wakes the drain.
    (0..1000).for_each(|_| map.begin_drain(RING, 4));
    assert_eq!(name_at(&map, 8192, 4), Some("(regexp) gone"));
}

#[test]
fn the_end_of_an_isolate_costs_in_proportion_to_its_own_code() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    let (codes, isolates) = (50_000, 2_000);
    let started_ns = current_thread_cpu_ns();
    for number in 0..codes {
        map.apply(added(0, number * 128, "JS:*lives a.js:1:1"), &mut ended);
    }
    let added_ns = current_thread_cpu_ns();
    for isolate in 2..2 + isolates {
        map.apply(CodeEvent { isolate, ..added(1, codes * 128, "JS:*ends a.js:1:1") }, &mut ended);
        map.apply(CodeEvent { ring: RING, position: 2, isolate, change: CodeChange::IsolateCleared }, &mut ended);
    }
    assert_eq!(map.len(), codes);
    // A tenth of the additions when correct, ten times as much with a scan of all code.
    let (ends_ns, additions_ns) = (current_thread_cpu_ns() - added_ns, added_ns - started_ns);
    assert!(ends_ns < additions_ns, "{ends_ns} ns for the ends, {additions_ns} ns for the code that lives");
}

#[test]
fn the_latest_retired_code_is_kept_for_stacks_that_are_submitted_late() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for number in 1..=3000 {
        map.apply(added(number, 8192, &format!("RegExp:{number}")), &mut ended);
    }
    let known = |map: &CodeMap| [1, 951, 952, 2999].map(|position| name_at(map, 8200, position).is_some());
    map.begin_drain(RING, 0);
    assert_eq!(known(&map), [true; 4], "all may be unresolved");
    map.begin_drain(RING, 3000);
    assert_eq!(known(&map), [false, false, true, true]);
    assert_eq!(name_at(&map, 8200, 952), Some("(regexp) 952"));
}

#[test]
fn code_moved_by_a_collection_is_resolved_at_both_addresses_until_the_collection_ends() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(1, 8192, "JS:~f /a.js:1:1"), &mut ended);
    let change = CodeChange::Moved { from: 8192, to: 90_000, keeps_old_address: true };
    map.apply(CodeEvent { ring: RING, position: 5, isolate: 1, change }, &mut ended);
    assert!(ended.is_empty(), "its old address is still valid");
    let is_resolved = |map: &CodeMap, positions: [u64; 2]| positions.map(|at| name_at(map, 8200, at).is_some());
    assert_eq!((is_resolved(&map, [4, 7]), name_at(&map, 90_010, 7)), ([true, true], Some("f")));
    for isolate in [2, 1] {
        map.apply(CodeEvent { ring: RING, position: 9, isolate, change: CodeChange::CollectionEnded }, &mut ended);
        assert_eq!(is_resolved(&map, [8, 9]), [true, isolate == 2]);
    }
    assert_eq!(ended, [EndedCode { code: 8192, position: 9 }]);
}

#[test]
fn builtins_outlive_an_isolate_that_logged_them() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for position in [1, 3] {
        let event = CodeEvent { isolate: OF_PROCESS, ..added(position, 8192, "Builtin:Shared") };
        map.apply(event, &mut ended);
    }
    map.apply(CodeEvent { ring: RING, position: 5, isolate: 2, change: CodeChange::IsolateCleared }, &mut ended);
    assert!(ended.is_empty());
    assert_eq!(name_at(&map, 8200, 6), Some("Shared"));
}

#[test]
fn webassembly_code_outlives_an_isolate_that_logged_it_and_ends_with_its_memory() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for position in [1, 3] {
        map.apply(CodeEvent { isolate: OF_MODULE, ..added(position, 8192, "Function:count-0-liftoff") }, &mut ended);
    }
    map.apply(CodeEvent { ring: RING, position: 5, isolate: 1, change: CodeChange::IsolateCleared }, &mut ended);
    assert!(ended.is_empty(), "logged by two isolates, of which one has ended");
    assert_eq!(name_at(&map, 8200, 2), Some("count-0-liftoff"));
    for number in 1..=MIN_NEW_BEFORE_SWEEP {
        map.apply(bytecode(6, (1 << 20) + number * 128, "JS:~f /a.js:1:1"), &mut ended);
    }
    for position in [7, 8] {
        map.sweep(&|code| code.start != 8192, &|| position, &mut ended);
    }
    assert_eq!((name_at(&map, 8200, 6), name_at(&map, 8200, 7)), (Some("count-0-liftoff"), None));
}

#[test]
fn a_function_at_its_entry_is_resolved_one_byte_before_its_bytecode() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(bytecode(1, 8192, "JS:~entered /a.js:1:1"), &mut ended);
    map.apply(added(1, 9000, "Builtin:machine"), &mut ended);
    let mut resolve = |address| {
        let mut frames = Vec::new();
        map.frames(address, 5, &mut frames);
        frames.first().map(|frame| frame.function.to_string())
    };
    assert_eq!(resolve(8191).as_deref(), Some("entered"));
    assert_eq!((resolve(8190), resolve(8999)), (None, None));
}

#[test]
fn a_line_table_comes_before_its_code() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    let change = CodeChange::Lines { start: 8192, positions: [(0, 7), (10, 9)].into() };
    map.apply(CodeEvent { ring: RING, position: 1, isolate: 1, change }, &mut ended);
    map.apply(added(1, 8192, "JS:*f /a.js:1:1"), &mut ended);
    assert_eq!(*map.find(8192, 1).unwrap().lines.positions(), [(0, 7), (10, 9)]);
}

/// A worker with one function for each of these addresses.
fn existing(position: u64, isolate: usize, starts: &[usize]) -> CodeEvent {
    let known = |logged: String| Arc::new(KnownFunction { logged: logged.into(), len: 64, lines: Arc::default() });
    let function =
        |start: &usize| ExistingFunction { start: *start, script: 7, known: known(format!("JS:~f{start} /a.js:1:1")) };
    let change = CodeChange::Existing { functions: starts.iter().map(function).collect(), map_word: None };
    CodeEvent { ring: RING, position, isolate, change }
}

#[test]
fn a_function_that_exists_at_the_start_of_a_worker_is_added_when_a_sample_or_an_event_refers_to_it() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    let frame_at = |map: &mut CodeMap, address, position| {
        let mut frames = Vec::new();
        map.frames(address, position, &mut frames);
        frames.first().map(|frame| frame.function.to_string())
    };
    map.apply(existing(3, 1, &[8192, 1024, 4096, 2048]), &mut ended);
    map.apply(existing(3, 2, &[1 << 20]), &mut ended);
    assert_eq!(map.len(), 0);
    assert_eq!(frame_at(&mut map, 1024 + 63, 3).as_deref(), Some("f1024"));
    assert_eq!(frame_at(&mut map, 4095, 3).as_deref(), Some("f4096"), "at its entry");
    assert_eq!(
        [(1024 + 64, 3), (2048, 2)].map(|(address, position)| frame_at(&mut map, address, position)),
        [None, None]
    );
    assert_eq!(map.len(), 2);
    // Its bytecode was collected, and other bytecode is in the same memory.
    map.apply(bytecode(5, 2048 + 32, "JS:~next /b.js:1:1"), &mut ended);
    assert_eq!(
        [4, 5].map(|position| frame_at(&mut map, 2048 + 40, position)),
        [Some("f2048".into()), Some("next".into())]
    );
    let moved = CodeChange::Moved { from: 8192, to: 16384, keeps_old_address: false };
    map.apply(CodeEvent { ring: RING, position: 6, isolate: 1, change: moved }, &mut ended);
    assert_eq!([5, 6].map(|position| frame_at(&mut map, 8200, position)), [Some("f8192".into()), None]);
    assert_eq!(frame_at(&mut map, 16390, 6).as_deref(), Some("f8192"));
    // A worker ends before its samples are resolved.
    map.apply(CodeEvent { ring: RING, position: 7, isolate: 2, change: CodeChange::IsolateCleared }, &mut ended);
    assert_eq!([6, 7].map(|position| frame_at(&mut map, 1 << 20, position)), [Some(format!("f{}", 1 << 20)), None]);
    map.apply(existing(8, 3, &[1 << 21]), &mut ended);
    map.apply(CodeEvent { ring: RING, position: 9, isolate: 3, change: CodeChange::IsolateCleared }, &mut ended);
    map.begin_drain(RING, 9);
    assert_eq!(frame_at(&mut map, 1 << 21, 8), None, "all its samples are resolved");
}
