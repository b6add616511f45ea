//! Tests of the code map: what lay where and when, and what is forgotten.

use std::time::Instant;

use super::*;

/// The ring whose positions are meant, and that a new map begins with.
const RING: usize = 0;
/// Before byte code.
const HEADER_BYTES: usize = 32;

fn added(position: u64, start: usize, name: &str) -> CodeEvent {
    CodeEvent {
        ring: RING,
        position,
        isolate: 1,
        change: Change::Added {
            start,
            len: 100,
            logged: name.into(),
            kind: Kind::Other,
            script: 0,
            inlining: None,
            kind_word: None,
        },
    }
}

fn byte_code(position: u64, start: usize, name: &str) -> CodeEvent {
    let mut event = added(position, start, name);
    if let Change::Added { kind, script, kind_word, .. } = &mut event.change {
        (*kind, *script, *kind_word) = (Kind::ByteCode, start as u32, Some((HEADER_BYTES, 7)));
    }
    event
}

#[test]
fn code_whose_memory_was_given_away_is_forgotten_with_its_name_and_its_script() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(0, 1 << 40, "Builtin:machine"), &mut ended);
    let churn = 50 * FEWEST_BEFORE_LOOK;
    let (mut most, mut position) = (0, 0);
    for number in 1..=churn {
        position = number as u64;
        let facts = Box::new(ScriptFacts::default());
        let change = Change::Script { number: number as u32 * 128, facts };
        map.apply(CodeEvent { ring: RING, position, isolate: 1, change }, &mut ended);
        map.apply(byte_code(position, number * 128, &format!("JS:~made{number} :1:1")), &mut ended);
        if number % 500 == 0 {
            // Another object lies where all but the last hundred lay; machine code has new words in its old place.
            let read = |address: usize| Some(if (address + HEADER_BYTES) / 128 + 100 > number { 7 } else { 8 });
            map.tidy(&read, &|| position, &mut ended);
            map.begin(RING, position);
            most = most.max(map.len());
        }
    }
    assert!(most < 3 * FEWEST_BEFORE_LOOK, "{most} pieces at once");
    assert!(map.names.len() < 4 * FEWEST_BEFORE_LOOK, "{} names", map.names.len());
    assert!(map.scripts.len() < 4 * FEWEST_BEFORE_LOOK, "{} scripts", map.scripts.len());
    assert!(map.bytes() < 3 * FEWEST_BEFORE_LOOK * CODE_BYTES);
    assert!(map.codes_forgotten as usize > churn - 3 * FEWEST_BEFORE_LOOK);
    assert_eq!(name_at(&map, churn * 128, position), Some(&*format!("made{churn}")));
    assert_eq!(name_at(&map, (1 << 40) + 6, position), Some("machine"));
}

#[test]
fn code_that_moves_while_it_is_looked_for_is_not_forgotten() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for number in 1..=FEWEST_BEFORE_LOOK {
        map.apply(byte_code(1, number * 128, "JS:~f /a.js:1:1"), &mut ended);
    }
    map.tidy(&|address| Some(if address + HEADER_BYTES == 128 { 8 } else { 7 }), &|| 5, &mut ended);
    let change = Change::Moved { from: 128, to: 1 << 30, stays_seen: false };
    map.apply(CodeEvent { ring: RING, position: 4, isolate: 1, change }, &mut ended);
    map.tidy(&|_| Some(7), &|| 6, &mut ended);
    assert_eq!((map.len(), map.codes_forgotten), (FEWEST_BEFORE_LOOK, 0));
    assert_eq!(name_at(&map, 1 << 30, 6), Some("f"));
}

#[test]
fn a_sample_taken_before_its_code_was_missed_is_still_named() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    (1..=FEWEST_BEFORE_LOOK).for_each(|number| map.apply(byte_code(1, number * 128, "JS:~f /a.js:1:1"), &mut ended));
    map.tidy(&|address| (address + HEADER_BYTES != 128).then_some(7), &|| 9, &mut ended);
    map.tidy(&|_| None, &|| 10, &mut ended);
    assert_eq!(map.codes_forgotten, 1);
    assert_eq!((name_at(&map, 130, 8), name_at(&map, 130, 9)), (Some("f"), None));
}

#[test]
fn code_that_was_not_listed_is_named_by_the_byte_code_of_its_function() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(byte_code(3, 1280, "JS:~looping /a.js:3:9"), &mut ended);
    let unlisted = |start, byte_code, isolate| {
        let change = Change::Unlisted { start, len: 100, byte_code, inlining: None };
        CodeEvent { ring: RING, position: 3, isolate, change }
    };
    for event in [unlisted(1 << 30, 1280, 1), unlisted(1 << 31, 1281, 1), unlisted(1 << 32, 1280, 2)] {
        map.apply(event, &mut ended);
    }
    let code = map.find((1 << 30) + 50, 3).unwrap();
    assert_eq!((&*code.name.function, code.kind, code.script), ("looping", Kind::Optimised, 1280));
    assert_eq!([1 << 31, 1 << 32].map(|start| name_at(&map, start, 3)), [None, None], "no such function there");
    // V8 compiles it anew, elsewhere in the same memory.
    map.apply(added(9, (1 << 30) + 64, "JS:*next /a.js:5:1"), &mut ended);
    assert_eq!([8, 9].map(|position| name_at(&map, (1 << 30) + 70, position)), [Some("looping"), Some("next")]);
}

fn name_at(map: &CodeMap, address: usize, position: u64) -> Option<&str> {
    map.find(address, position).map(|code| &*code.name.function)
}

#[test]
fn an_address_means_what_lay_there_when_the_sample_was_taken() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(10, 5000, "Builtin:first"), &mut ended);
    assert!(ended.is_empty(), "new ground ends nothing");
    map.apply(added(20, 5050, "Builtin:second"), &mut ended);
    assert_eq!(ended, [Ended { code: 4096, position: 20 }]);
    assert_eq!(name_at(&map, 5060, 15), Some("first"));
    assert_eq!(name_at(&map, 5060, 20), Some("second"));
    assert_eq!(name_at(&map, 5060, 5), None, "before it was born");
    assert_eq!(name_at(&map, 5020, 25), None, "the rest of the first is gone too");
}

#[test]
fn code_that_lives_on_is_found_at_any_position_of_another_ring() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(900, 8192, "Builtin:old"), &mut ended);
    map.begin(RING + 1, 0);
    assert_eq!(name_at(&map, 8200, 3), Some("old"));
}

#[test]
fn what_happened_while_another_ring_was_in_use_lies_before_all_positions_of_the_present_one() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.begin(RING + 1, 0);
    map.apply(added(900, 8192, "Builtin:listed_meanwhile"), &mut ended);
    assert_eq!(name_at(&map, 8200, 3), Some("listed_meanwhile"));
    map.apply(added(900, 8192, "Builtin:next"), &mut ended);
    assert_eq!(ended, [Ended { code: 8192, position: 0 }]);
    assert_eq!(name_at(&map, 8200, 3), Some("next"));
}

#[test]
fn code_that_moved_is_found_at_both_places_in_its_time() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(1, 8192, "Builtin:mover"), &mut ended);
    let change = Change::Moved { from: 8192, to: 90_000, stays_seen: false };
    map.apply(CodeEvent { ring: RING, position: 7, isolate: 1, change }, &mut ended);
    assert_eq!((name_at(&map, 8200, 6), name_at(&map, 8200, 7)), (Some("mover"), None));
    assert_eq!((name_at(&map, 90_010, 6), name_at(&map, 90_010, 7)), (None, Some("mover")));
}

#[test]
fn an_isolate_takes_its_code_along_and_its_samples_are_named_however_often_the_drain_wakes_before_it_gets_to_them() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.begin(RING, 1);
    map.apply(added(1, 8192, "RegExp:gone"), &mut ended);
    map.apply(CodeEvent { ring: RING, position: 5, isolate: 1, change: Change::Forgotten }, &mut ended);
    assert_eq!(map.len(), 0);
    // An entry that its thread has not finished holds up the samples behind it, and each new one wakes the drain.
    (0..1000).for_each(|_| map.begin(RING, 4));
    assert_eq!(name_at(&map, 8192, 4), Some("(regexp) gone"));
}

#[test]
fn the_end_of_an_isolate_costs_what_it_had_and_not_what_others_have() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    let (codes, isolates) = (50_000, 2_000);
    let began = Instant::now();
    for number in 0..codes {
        map.apply(added(0, number * 128, "JS:*lives a.js:1:1"), &mut ended);
    }
    let taken_in = began.elapsed();
    let began = Instant::now();
    for isolate in 2..2 + isolates {
        map.apply(CodeEvent { isolate, ..added(1, codes * 128, "JS:*ends a.js:1:1") }, &mut ended);
        map.apply(CodeEvent { ring: RING, position: 2, isolate, change: Change::Forgotten }, &mut ended);
    }
    assert_eq!(map.len(), codes);
    // Beside each other, since a busy machine slows both: a tenth in truth, and ten times as much when each looks at all code.
    assert!(began.elapsed() < taken_in, "{:?} for the ends, {taken_in:?} for the code that lives", began.elapsed());
}

#[test]
fn of_code_that_ended_the_latest_is_kept_for_stacks_that_are_handed_over_late() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for number in 1..=3000 {
        map.apply(added(number, 8192, &format!("RegExp:{number}")), &mut ended);
    }
    let known = |map: &CodeMap| [1, 951, 952, 2999].map(|position| name_at(map, 8200, position).is_some());
    map.begin(RING, 0);
    assert_eq!(known(&map), [true; 4], "all may wait to be named");
    map.begin(RING, 3000);
    assert_eq!(known(&map), [false, false, true, true]);
    assert_eq!(name_at(&map, 8200, 952), Some("(regexp) 952"));
}

#[test]
fn code_that_a_collection_moves_is_named_at_both_places_until_the_collection_is_over() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(added(1, 8192, "JS:~f /a.js:1:1"), &mut ended);
    let change = Change::Moved { from: 8192, to: 90_000, stays_seen: true };
    map.apply(CodeEvent { ring: RING, position: 5, isolate: 1, change }, &mut ended);
    assert!(ended.is_empty(), "its old place still means it");
    let named = |map: &CodeMap, positions: [u64; 2]| positions.map(|at| name_at(map, 8200, at).is_some());
    assert_eq!((named(&map, [4, 7]), name_at(&map, 90_010, 7)), ([true, true], Some("f")));
    for isolate in [2, 1] {
        map.apply(CodeEvent { ring: RING, position: 9, isolate, change: Change::Settled }, &mut ended);
        assert_eq!(named(&map, [8, 9]), [true, isolate == 2]);
    }
    assert_eq!(ended, [Ended { code: 8192, position: 9 }]);
}

#[test]
fn built_in_code_stays_when_an_isolate_that_logged_it_ends() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for position in [1, 3] {
        let event = CodeEvent { isolate: OF_PROCESS, ..added(position, 8192, "Builtin:Shared") };
        map.apply(event, &mut ended);
    }
    map.apply(CodeEvent { ring: RING, position: 5, isolate: 2, change: Change::Forgotten }, &mut ended);
    assert!(ended.is_empty());
    assert_eq!(name_at(&map, 8200, 6), Some("Shared"));
}

#[test]
fn code_of_webassembly_stays_when_an_isolate_that_told_of_it_ends_and_goes_with_its_memory() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    for position in [1, 3] {
        map.apply(CodeEvent { isolate: OF_MODULE, ..added(position, 8192, "Function:count-0-liftoff") }, &mut ended);
    }
    map.apply(CodeEvent { ring: RING, position: 5, isolate: 1, change: Change::Forgotten }, &mut ended);
    assert!(ended.is_empty(), "told of twice, and one of those who told has ended");
    assert_eq!(name_at(&map, 8200, 2), Some("count-0-liftoff"));
    for number in 1..=FEWEST_BEFORE_LOOK {
        map.apply(byte_code(6, (1 << 20) + number * 128, "JS:~f /a.js:1:1"), &mut ended);
    }
    for position in [7, 8] {
        map.tidy(&|address| (address != 8192).then_some(7), &|| position, &mut ended);
    }
    assert_eq!((name_at(&map, 8200, 6), name_at(&map, 8200, 7)), (Some("count-0-liftoff"), None));
}

#[test]
fn a_function_that_is_being_entered_is_named_one_byte_before_its_byte_code() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    map.apply(byte_code(1, 8192, "JS:~entered /a.js:1:1"), &mut ended);
    map.apply(added(1, 9000, "Builtin:machine"), &mut ended);
    let mut named = |address| {
        let mut frames = Vec::new();
        map.frames(address, 5, &mut frames);
        frames.first().map(|frame| frame.function.to_string())
    };
    assert_eq!(named(8191).as_deref(), Some("entered"));
    assert_eq!((named(8190), named(8999)), (None, None));
}

#[test]
fn a_line_table_comes_before_its_code() {
    let (mut map, mut ended) = (CodeMap::default(), Vec::new());
    let change = Change::Lines { start: 8192, positions: [(0, 7), (10, 9)].into() };
    map.apply(CodeEvent { ring: RING, position: 1, isolate: 1, change }, &mut ended);
    map.apply(added(1, 8192, "JS:*f /a.js:1:1"), &mut ended);
    assert_eq!(*map.find(8192, 1).unwrap().lines.positions(), [(0, 7), (10, 9)]);
}
