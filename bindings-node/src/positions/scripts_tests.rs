//! Tests of resolution: executing line and column, inlined functions, source maps, and unknown positions.

use super::*;
use crate::positions::{InliningPosition, PositionTableEntry};

fn name(function: &str, line: u32, column: u32) -> Arc<CodeName> {
    let file = "/srv/a.js".into();
    Arc::new(CodeName { function: function.into(), file, start_line: line, start_column: column, is_script: true })
}

/// Lines of ten code units: line n starts at 10 n.
fn info(map_url: Option<&str>) -> ScriptInfo {
    let line_starts = (0..20).map(|line| line * 10).collect();
    ScriptInfo {
        name: "/srv/a.js".into(),
        line_starts,
        units: 200,
        map_url: map_url.map(Into::into),
        guard: RetentionGuard::default(),
    }
}

const ISOLATE: usize = 7;

fn scripts(map_url: Option<&str>) -> Scripts {
    let mut scripts = Scripts::default();
    scripts.add(1, ISOLATE, info(map_url));
    scripts
}

fn at<'a>(name: &'a Arc<CodeName>, positions: &'a [Position], offset: u32) -> CodeLocation<'a> {
    CodeLocation { name, script: 1, positions, inlining: None, is_optimized: false, offset }
}

fn frames(scripts: &mut Scripts, at: &CodeLocation<'_>) -> Vec<(String, String, u32, u32, u32)> {
    let mut out = Vec::new();
    scripts.frames(at, &mut out);
    let parts =
        |frame: Frame| (frame.function.to_string(), frame.file.to_string(), frame.start_line, frame.line, frame.column);
    out.into_iter().map(parts).collect()
}

fn expected(function: &str, start_line: u32, line: u32, column: u32) -> (String, String, u32, u32, u32) {
    (function.to_owned(), "/srv/a.js".to_owned(), start_line, line, column)
}

#[test]
fn a_frame_has_its_executing_line_and_column() {
    let (mut scripts, name) = (scripts(None), name("f", 2, 3));
    let positions = [(0, 13), (8, 24)];
    assert_eq!(frames(&mut scripts, &at(&name, &positions, 7)), [expected("f", 2, 2, 4)]);
    assert_eq!(frames(&mut scripts, &at(&name, &positions, 9)), [expected("f", 2, 3, 5)]);
}

#[test]
fn without_a_plausible_position_the_frame_has_the_functions_first_line() {
    let (mut scripts, name) = (scripts(None), name("f", 5, 1));
    let first_line = [expected("f", 5, 5, 0)];
    assert_eq!(frames(&mut scripts, &at(&name, &[], 7)), first_line);
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 13)], 7)), first_line, "before the function begins");
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 999)], 7)), first_line, "past the end of the source");
    let unknown = CodeLocation { script: 9, ..at(&name, &[(0, 60)], 7) };
    assert_eq!(frames(&mut scripts, &unknown), first_line, "an unknown script");
}

#[test]
fn an_inlined_function_is_a_frame_above_its_caller() {
    let (mut scripts, outer, inner) = (scripts(None), name("outer", 1, 1), name("inner", 6, 1));
    scripts.add_function(1, &outer, &LineTable::decoded([(0, 2), (4, 21), (6, 35)]));
    scripts.add_function(1, &inner, &LineTable::decoded([(0, 55), (3, 68)]));
    let entries = [(0, 21, 0), (10, 68, 1), (20, 71, 1), (30, 5, 2)];
    let entries = entries.map(|(code_offset, script_offset, inlining)| PositionTableEntry {
        code_offset,
        script_offset,
        inlining,
    });
    let calls = vec![
        InliningPosition { script: 1, call_offset: 35, caller: 0 },
        InliningPosition { script: 0, call_offset: 21, caller: 0 },
    ];
    let inlining = Inlining::new(entries.to_vec(), calls, true).unwrap();
    let mut named = |offset| {
        let at = CodeLocation { inlining: Some(&inlining), is_optimized: true, ..at(&outer, &[], offset) };
        frames(&mut scripts, &at)
    };
    assert_eq!(named(5), [expected("outer", 1, 3, 2)]);
    assert_eq!(named(12), [expected("inner", 6, 7, 9), expected("outer", 1, 4, 6)]);
    assert_eq!(
        named(22),
        [expected("(inlined)", 0, 8, 2), expected("outer", 1, 4, 6)],
        "a position outside every function"
    );
    let nowhere = ("(inlined)".to_owned(), String::new(), 0, 0, 0);
    assert_eq!(named(31), [nowhere, expected("outer", 1, 3, 2)], "a function without a script");
    assert_eq!(scripts.inlined_unnamed, 2);
}

#[test]
fn functions_added_later_are_found_by_their_current_positions() {
    let (mut scripts, outer, late) = (scripts(None), name("outer", 1, 1), name("late", 6, 1));
    let entry = |code_offset, script_offset| PositionTableEntry { code_offset, script_offset, inlining: 1 };
    let call = InliningPosition { script: 1, call_offset: 12, caller: 0 };
    let inlining = Inlining::new(vec![entry(0, 68), entry(4, 75)], vec![call], true).unwrap();
    let named = |scripts: &mut Scripts, offset| {
        let at = CodeLocation { inlining: Some(&inlining), is_optimized: true, ..at(&outer, &[], offset) };
        frames(scripts, &at)[0].0.clone()
    };
    scripts.add_function(1, &outer, &LineTable::decoded([(0, 2), (4, 12)]));
    assert_eq!(named(&mut scripts, 0), "(inlined)");
    scripts.add_function(1, &late, &LineTable::decoded([(0, 55), (3, 68)]));
    assert_eq!([named(&mut scripts, 0), named(&mut scripts, 4)], ["late", "(inlined)"]);
    scripts.add_function(1, &late, &LineTable::decoded([(0, 55), (3, 75)]));
    assert_eq!([named(&mut scripts, 0), named(&mut scripts, 4)], ["(inlined)", "late"]);
    assert_eq!(frames(&mut scripts, &at(&outer, &[(0, 2)], 0)), [expected("outer", 1, 1, 3)]);
}

#[test]
fn a_position_shared_by_two_functions_names_neither() {
    let (mut scripts, one, other) = (scripts(None), name("one", 1, 1), name("other", 2, 1));
    scripts.add_function(1, &one, &LineTable::decoded([(0, 15)]));
    scripts.add_function(1, &other, &LineTable::decoded([(0, 15)]));
    let entry = PositionTableEntry { code_offset: 0, script_offset: 15, inlining: 1 };
    let call = InliningPosition { script: 1, call_offset: 12, caller: 0 };
    let inlining = Inlining::new(vec![entry], vec![call], true).unwrap();
    let at = CodeLocation { inlining: Some(&inlining), is_optimized: true, ..at(&one, &[], 0) };
    assert_eq!(frames(&mut scripts, &at)[0], expected("(inlined)", 0, 2, 6));
}

#[test]
fn optimized_code_with_unknown_inlining_has_a_line_only_if_all_its_positions_are_its_own() {
    let (mut scripts, name) = (scripts(None), name("f", 1, 1));
    scripts.add_function(1, &name, &LineTable::decoded([(0, 12), (4, 33)]));
    let own = CodeLocation { is_optimized: true, ..at(&name, &[(0, 12), (9, 33)], 10) };
    assert_eq!(frames(&mut scripts, &own), [expected("f", 1, 4, 4)]);
    let mixed = CodeLocation { is_optimized: true, ..at(&name, &[(0, 12), (9, 34)], 2) };
    assert_eq!(frames(&mut scripts, &mixed), [expected("f", 1, 1, 0)]);
}

#[test]
fn unreported_inlining_is_trusted_only_if_most_of_the_callers_positions_are_its_own() {
    let (mut scripts, outer, inner) = (scripts(None), name("outer", 1, 1), name("inner", 6, 1));
    scripts.add_function(1, &outer, &LineTable::decoded([(0, 2), (4, 21), (6, 35)]));
    scripts.add_function(1, &inner, &LineTable::decoded([(0, 55), (3, 68)]));
    let mut named = |foreign, call_offset, offset| {
        let entries = [(0, foreign, 0), (5, 21, 0), (10, 68, 1)];
        let entry =
            |(code_offset, script_offset, inlining)| PositionTableEntry { code_offset, script_offset, inlining };
        let calls = vec![InliningPosition { script: 1, call_offset, caller: 0 }];
        let inlining = Inlining::new(entries.map(entry).to_vec(), calls, false).unwrap();
        let at = CodeLocation { inlining: Some(&inlining), is_optimized: true, ..at(&outer, &[], offset) };
        frames(&mut scripts, &at)
    };
    assert_eq!(named(2, 35, 12), [expected("inner", 6, 7, 9), expected("outer", 1, 4, 6)]);
    assert_eq!(named(2, 0, 12), [expected("inner", 6, 7, 9), expected("outer", 1, 1, 1)], "its start");
    assert_eq!(named(3, 35, 12), [expected("inner", 6, 7, 9), expected("outer", 1, 4, 6)], "one foreign position");
    assert_eq!(named(3, 35, 2), [expected("outer", 1, 1, 0)], "at the foreign position");
    assert_eq!(named(3, 36, 12), [expected("outer", 1, 1, 0)], "too many");
}

const MAP: &str = r#"data:,{"version":3,"sources":["src/a.ts"],"mappings":"AAAA;AAUA,IAAI;;AACA"}"#;

#[test]
fn a_source_map_gives_file_lines_and_column() {
    let (mut scripts, name) = (scripts(Some(MAP)), name("f", 2, 1));
    let mapped = |line, column| ("f".to_owned(), "/srv/src/a.ts".to_owned(), 11, line, column);
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 15)], 3)), [mapped(11, 5)]);
    assert_eq!(frames(&mut scripts, &at(&name, &[], 3)), [mapped(11, 0)], "its first line, without a position");
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 31)], 3)), [mapped(12, 5)]);
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 25)], 3)), [expected("f", 2, 3, 6)], "a line without a source");
    assert_eq!((scripts.maps_read, scripts.maps_refused), (1, 0));
}

#[test]
fn an_unreadable_map_leaves_the_generated_location_and_is_reported() {
    let (mut scripts, name) = (scripts(Some("missing.js.map")), name("f", 2, 1));
    for _ in 0..2 {
        assert_eq!(frames(&mut scripts, &at(&name, &[(0, 15)], 3)), [expected("f", 2, 2, 6)]);
    }
    assert_eq!(scripts.maps_refused, 1, "read once");
    assert!(scripts.last_refusal.contains("/srv/missing.js.map"), "{}", scripts.last_refusal);
}

#[test]
fn the_least_recently_used_scripts_are_evicted_above_the_memory_limit() {
    let mut scripts = Scripts::default();
    let url = "x".repeat(MAX_SCRIPT_BYTES / 5).into_boxed_str();
    let name = name("f", 1, 1);
    for number in 1..=6 {
        scripts.add(number, ISOLATE, ScriptInfo { map_url: Some(url.clone()), ..info(None) });
        frames(&mut scripts, &at(&name, &[(0, 3)], 0));
    }
    assert!(scripts.script_bytes <= MAX_SCRIPT_BYTES && scripts.scripts_forgotten > 0);
    assert!(scripts.scripts.contains_key(&1), "the oldest, but in use");
    assert!(scripts.scripts.contains_key(&6), "the newest");
}

#[test]
fn scripts_outlive_their_isolate_until_its_samples_are_named() {
    let (mut scripts, name) = (scripts(None), name("f", 2, 3));
    scripts.end_isolate(ISOLATE, 9);
    (1..50).for_each(|_| scripts.begin_drain(8));
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 13)], 0)), [expected("f", 2, 2, 4)]);
    scripts.begin_drain(9);
    assert_eq!((scripts.len(), scripts.script_bytes), (0, 0));
}

#[test]
fn a_script_is_retained_until_it_has_no_code_and_one_of_the_process_longer() {
    let [own, referenced, shared] = [40_001, 40_002, 40_003];
    let mut scripts = Scripts::default();
    for (number, isolate) in [(own, ISOLATE), (referenced, ISOLATE), (shared, OF_PROCESS)] {
        scripts.add(number, isolate, ScriptInfo { guard: RetentionGuard::new(number), ..info(None) });
    }
    // Another worker described it as well.
    scripts.add(shared, OF_PROCESS, ScriptInfo { guard: RetentionGuard::new(shared), ..info(None) });
    let retained = || [own, referenced, shared].map(is_retained);
    scripts.drop_unreferenced(&HashSet::from([referenced]));
    assert_eq!(retained(), [true; 3], "their code may still be queued");
    scripts.begin_drain(0);
    scripts.drop_unreferenced(&HashSet::from([referenced]));
    assert_eq!((scripts.len(), retained()), (2, [false, true, true]));
    scripts.end_isolate(ISOLATE, 1);
    scripts.begin_drain(1);
    assert_eq!((scripts.len(), retained()), (1, [false, false, true]));
}
