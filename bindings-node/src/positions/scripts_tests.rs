//! Tests of naming: executing line and column, inlined functions, source maps, and what is not known.

use super::*;
use crate::positions::{Call, Entry};

fn name(function: &str, line: u32, column: u32) -> Arc<CodeName> {
    let file = "/srv/a.js".into();
    Arc::new(CodeName { function: function.into(), file, start_line: line, start_column: column, is_script: true })
}

/// Lines of ten units: line n begins at 10 n.
fn facts(map_url: Option<&str>) -> ScriptFacts {
    let line_starts = (0..20).map(|line| line * 10).collect();
    ScriptFacts {
        name: "/srv/a.js".into(),
        line_starts,
        units: 200,
        map_url: map_url.map(Into::into),
        held: Held::default(),
    }
}

const ISOLATE: usize = 7;

fn scripts(map_url: Option<&str>) -> Scripts {
    let mut scripts = Scripts::default();
    scripts.introduce(1, ISOLATE, facts(map_url));
    scripts
}

fn at<'a>(name: &'a Arc<CodeName>, positions: &'a [Position], offset: u32) -> At<'a> {
    At { name, script: 1, positions, inlining: None, is_optimised: false, offset }
}

fn frames(scripts: &mut Scripts, at: &At<'_>) -> Vec<(String, String, u32, u32, u32)> {
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
fn without_a_believable_place_the_function_is_named_by_its_first_line() {
    let (mut scripts, name) = (scripts(None), name("f", 5, 1));
    let first_line = [expected("f", 5, 5, 0)];
    assert_eq!(frames(&mut scripts, &at(&name, &[], 7)), first_line);
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 13)], 7)), first_line, "before the function begins");
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 999)], 7)), first_line, "behind the text");
    let unknown = At { script: 9, ..at(&name, &[(0, 60)], 7) };
    assert_eq!(frames(&mut scripts, &unknown), first_line, "a script nobody told of");
}

#[test]
fn an_inlined_function_is_a_frame_above_its_caller() {
    let (mut scripts, outer, inner) = (scripts(None), name("outer", 1, 1), name("inner", 6, 1));
    scripts.function(1, &outer, &LineTable::decoded([(0, 2), (4, 21), (6, 35)]));
    scripts.function(1, &inner, &LineTable::decoded([(0, 55), (3, 68)]));
    let entries = [(0, 21, 0), (10, 68, 1), (20, 71, 1), (30, 5, 2)];
    let entries = entries.map(|(code_offset, script_offset, inlining)| Entry { code_offset, script_offset, inlining });
    let calls = vec![Call { script: 1, called_at: 35, caller: 0 }, Call { script: 0, called_at: 21, caller: 0 }];
    let inlining = Inlining::new(entries.to_vec(), calls, true).unwrap();
    let mut named = |offset| {
        let at = At { inlining: Some(&inlining), is_optimised: true, ..at(&outer, &[], offset) };
        frames(&mut scripts, &at)
    };
    assert_eq!(named(5), [expected("outer", 1, 3, 2)]);
    assert_eq!(named(12), [expected("inner", 6, 7, 9), expected("outer", 1, 4, 6)]);
    assert_eq!(named(22), [expected("(inlined)", 0, 8, 2), expected("outer", 1, 4, 6)], "a place of no function");
    let nowhere = ("(inlined)".to_owned(), String::new(), 0, 0, 0);
    assert_eq!(named(31), [nowhere, expected("outer", 1, 3, 2)], "a function of no script");
    assert_eq!(scripts.inlined_unnamed, 2);
}

#[test]
fn functions_told_of_later_are_found_by_the_places_they_have_now() {
    let (mut scripts, outer, late) = (scripts(None), name("outer", 1, 1), name("late", 6, 1));
    let entry = |code_offset, script_offset| Entry { code_offset, script_offset, inlining: 1 };
    let call = Call { script: 1, called_at: 12, caller: 0 };
    let inlining = Inlining::new(vec![entry(0, 68), entry(4, 75)], vec![call], true).unwrap();
    let named = |scripts: &mut Scripts, offset| {
        let at = At { inlining: Some(&inlining), is_optimised: true, ..at(&outer, &[], offset) };
        frames(scripts, &at)[0].0.clone()
    };
    scripts.function(1, &outer, &LineTable::decoded([(0, 2), (4, 12)]));
    assert_eq!(named(&mut scripts, 0), "(inlined)");
    scripts.function(1, &late, &LineTable::decoded([(0, 55), (3, 68)]));
    assert_eq!([named(&mut scripts, 0), named(&mut scripts, 4)], ["late", "(inlined)"]);
    scripts.function(1, &late, &LineTable::decoded([(0, 55), (3, 75)]));
    assert_eq!([named(&mut scripts, 0), named(&mut scripts, 4)], ["(inlined)", "late"]);
    assert_eq!(frames(&mut scripts, &at(&outer, &[(0, 2)], 0)), [expected("outer", 1, 1, 3)]);
}

#[test]
fn a_place_that_two_functions_have_names_neither() {
    let (mut scripts, one, other) = (scripts(None), name("one", 1, 1), name("other", 2, 1));
    scripts.function(1, &one, &LineTable::decoded([(0, 15)]));
    scripts.function(1, &other, &LineTable::decoded([(0, 15)]));
    let entry = Entry { code_offset: 0, script_offset: 15, inlining: 1 };
    let call = Call { script: 1, called_at: 12, caller: 0 };
    let inlining = Inlining::new(vec![entry], vec![call], true).unwrap();
    let at = At { inlining: Some(&inlining), is_optimised: true, ..at(&one, &[], 0) };
    assert_eq!(frames(&mut scripts, &at)[0], expected("(inlined)", 0, 2, 6));
}

#[test]
fn optimised_code_whose_inlining_is_unknown_has_a_line_only_if_all_its_places_are_its_own() {
    let (mut scripts, name) = (scripts(None), name("f", 1, 1));
    scripts.function(1, &name, &LineTable::decoded([(0, 12), (4, 33)]));
    let own = At { is_optimised: true, ..at(&name, &[(0, 12), (9, 33)], 10) };
    assert_eq!(frames(&mut scripts, &own), [expected("f", 1, 4, 4)]);
    let mixed = At { is_optimised: true, ..at(&name, &[(0, 12), (9, 34)], 2) };
    assert_eq!(frames(&mut scripts, &mixed), [expected("f", 1, 1, 0)]);
}

#[test]
fn inlining_that_nobody_told_is_believed_only_if_most_of_the_callers_places_are_its_own() {
    let (mut scripts, outer, inner) = (scripts(None), name("outer", 1, 1), name("inner", 6, 1));
    scripts.function(1, &outer, &LineTable::decoded([(0, 2), (4, 21), (6, 35)]));
    scripts.function(1, &inner, &LineTable::decoded([(0, 55), (3, 68)]));
    let mut named = |strange, called_at, offset| {
        let entries = [(0, strange, 0), (5, 21, 0), (10, 68, 1)];
        let entry = |(code_offset, script_offset, inlining)| Entry { code_offset, script_offset, inlining };
        let calls = vec![Call { script: 1, called_at, caller: 0 }];
        let inlining = Inlining::new(entries.map(entry).to_vec(), calls, false).unwrap();
        let at = At { inlining: Some(&inlining), is_optimised: true, ..at(&outer, &[], offset) };
        frames(&mut scripts, &at)
    };
    assert_eq!(named(2, 35, 12), [expected("inner", 6, 7, 9), expected("outer", 1, 4, 6)]);
    assert_eq!(named(2, 0, 12), [expected("inner", 6, 7, 9), expected("outer", 1, 1, 1)], "its beginning");
    assert_eq!(named(3, 35, 12), [expected("inner", 6, 7, 9), expected("outer", 1, 4, 6)], "one strange place");
    assert_eq!(named(3, 35, 2), [expected("outer", 1, 1, 0)], "at the strange place");
    assert_eq!(named(3, 36, 12), [expected("outer", 1, 1, 0)], "too many");
}

const MAP: &str = r#"data:,{"version":3,"sources":["src/a.ts"],"mappings":"AAAA;AAUA,IAAI;;AACA"}"#;

#[test]
fn a_source_map_gives_file_lines_and_column() {
    let (mut scripts, name) = (scripts(Some(MAP)), name("f", 2, 1));
    let mapped = |line, column| ("f".to_owned(), "/srv/src/a.ts".to_owned(), 11, line, column);
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 15)], 3)), [mapped(11, 5)]);
    assert_eq!(frames(&mut scripts, &at(&name, &[], 3)), [mapped(11, 0)], "its first line, without a place");
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 31)], 3)), [mapped(12, 5)]);
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 25)], 3)), [expected("f", 2, 3, 6)], "a line of no source");
    assert_eq!((scripts.maps_read, scripts.maps_refused), (1, 0));
}

#[test]
fn a_map_that_cannot_be_read_leaves_the_text_that_runs_and_says_why() {
    let (mut scripts, name) = (scripts(Some("missing.js.map")), name("f", 2, 1));
    for _ in 0..2 {
        assert_eq!(frames(&mut scripts, &at(&name, &[(0, 15)], 3)), [expected("f", 2, 2, 6)]);
    }
    assert_eq!(scripts.maps_refused, 1, "asked once");
    assert!(scripts.last_refusal.contains("/srv/missing.js.map"), "{}", scripts.last_refusal);
}

#[test]
fn scripts_beyond_the_memory_they_may_have_are_forgotten_unless_asked_for() {
    let mut scripts = Scripts::default();
    let url = "x".repeat(MAX_SCRIPT_BYTES / 5).into_boxed_str();
    let name = name("f", 1, 1);
    for number in 1..=6 {
        scripts.introduce(number, ISOLATE, ScriptFacts { map_url: Some(url.clone()), ..facts(None) });
        frames(&mut scripts, &at(&name, &[(0, 3)], 0));
    }
    assert!(scripts.script_bytes <= MAX_SCRIPT_BYTES && scripts.scripts_forgotten > 0);
    assert!(scripts.scripts.contains_key(&1), "the oldest, but in use");
    assert!(scripts.scripts.contains_key(&6), "the newest");
}

#[test]
fn scripts_outlive_their_isolate_until_its_samples_are_named() {
    let (mut scripts, name) = (scripts(None), name("f", 2, 3));
    scripts.end(ISOLATE, 9);
    (1..50).for_each(|_| scripts.begin(8));
    assert_eq!(frames(&mut scripts, &at(&name, &[(0, 13)], 0)), [expected("f", 2, 2, 4)]);
    scripts.begin(9);
    assert_eq!((scripts.len(), scripts.script_bytes), (0, 0));
}

#[test]
fn scripts_without_code_are_forgotten_and_the_javascript_thread_can_see_it() {
    let mut scripts = Scripts::default();
    let (held, is_held) = Held::new();
    scripts.introduce(1, ISOLATE, ScriptFacts { held, ..facts(None) });
    scripts.introduce(2, ISOLATE, facts(None));
    scripts.forget_others(&HashSet::from([2]));
    assert_eq!(scripts.len(), 2, "their code may be under way");
    scripts.begin(0);
    scripts.forget_others(&HashSet::from([2]));
    assert_eq!((scripts.len(), is_held.load(Ordering::Relaxed)), (1, false));
}
