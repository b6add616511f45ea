//! The file format of speedscope (<https://www.speedscope.app/file-format-schema.json>, version 1.x): one profile per type,
//! sampled, with shared frames.

use std::fmt::Write;

use crate::flamegraph::{write_numbers, write_text};
use spanprof_profile::transform::{FunctionKey, StackTree};

/// One file with all `trees`, whose types become its profiles.
pub fn encode(trees: &[StackTree], name: &str) -> String {
    let mut out = String::from(
        r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"spanprof","name":"#,
    );
    write_text(&mut out, name);
    out.push_str(r#","activeProfileIndex":0,"shared":{"frames":["#);
    // Frames of all trees in sequence: the root of each, entry 0, is left out.
    let mut first_frame = Vec::with_capacity(trees.len());
    let mut frames = 0;
    for tree in trees {
        first_frame.push(frames);
        for FunctionKey { name, file, .. } in tree.functions.iter().skip(1) {
            out.push_str(if frames > 0 { ",{\"name\":" } else { "{\"name\":" });
            write_text(&mut out, name);
            if !file.is_empty() {
                out.push_str(",\"file\":");
                write_text(&mut out, file);
            }
            out.push('}');
            frames += 1;
        }
    }
    out.push_str("]},\"profiles\":[");
    for (nth, (tree, first)) in trees.iter().zip(first_frame).enumerate() {
        if nth > 0 {
            out.push(',');
        }
        write_profile(&mut out, tree, first);
    }
    out.push_str("]}\n");
    out
}

fn write_profile(out: &mut String, tree: &StackTree, first_frame: usize) {
    // speedscope supports these units and formats the others as plain numbers.
    let unit = match tree.unit.as_str() {
        known @ ("nanoseconds" | "microseconds" | "milliseconds" | "seconds" | "bytes") => known,
        _ => "none",
    };
    let total = tree.nodes.first().map_or(0, |root| root.total_weight);
    out.push_str(r#"{"type":"sampled","name":"#);
    write_text(out, &tree.type_name);
    // Writing to a String cannot fail.
    let _ = write!(out, r#","unit":"{unit}","startValue":0,"endValue":{total},"samples":["#);
    let mut weights = Vec::new();
    let mut path: Vec<u32> = Vec::new();
    for (at, node) in tree.nodes.iter().enumerate() {
        while path.last().is_some_and(|last| *last != node.parent) {
            path.pop();
        }
        if at > 0 {
            path.push(at as u32);
        }
        if node.self_weight == 0 {
            continue;
        }
        out.push_str(if weights.is_empty() { "[" } else { ",[" });
        for (nth, step) in path.iter().enumerate() {
            let frame = first_frame + tree.nodes[*step as usize].function as usize - 1;
            let _ = if nth > 0 { write!(out, ",{frame}") } else { write!(out, "{frame}") };
        }
        out.push(']');
        weights.push(node.self_weight);
    }
    out.push(']');
    write_numbers(out, "weights", weights.into_iter());
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::transform::StackNode;

    #[test]
    fn samples_are_stacks_of_shared_frames_with_weights() {
        let node =
            |parent, function, self_weight, total_weight| StackNode { parent, function, self_weight, total_weight };
        let function = |name: &str, file: &str| FunctionKey {
            name: name.to_owned(),
            file: file.to_owned(),
            ..FunctionKey::default()
        };
        let tree = |type_name: &str, unit: &str| StackTree {
            type_name: type_name.to_owned(),
            unit: unit.to_owned(),
            functions: vec![function("root", ""), function("main", "app.py"), function("a \"b\"", "")],
            nodes: vec![node(0, 0, 1, 31), node(0, 1, 10, 30), node(1, 2, 15, 15), node(1, 1, 5, 5)],
        };
        let text = encode(&[tree("cpu", "nanoseconds"), tree("alloc_objects", "count")], "shop");
        let read: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
        let frames = read["shared"]["frames"].as_array().unwrap();
        assert_eq!((frames.len(), &frames[1]["name"], &frames[0]["file"]), (4, &"a \"b\"".into(), &"app.py".into()));
        let [cpu, objects] = read["profiles"].as_array().unwrap().as_slice() else { panic!("{read}") };
        assert_eq!(cpu["samples"].to_string(), "[[],[0],[0,1],[0,0]]");
        assert_eq!(objects["samples"].to_string(), "[[],[2],[2,3],[2,2]]");
        assert_eq!(cpu["weights"].to_string(), "[1,10,15,5]");
        assert_eq!((&cpu["unit"], &objects["unit"]), (&"nanoseconds".into(), &"none".into()));
        assert_eq!(cpu["endValue"], 31);
    }
}
