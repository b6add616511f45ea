//! A flame graph as one SVG image: for documents and viewers without scripts. The root is at the bottom; the text of a frame
//! is its name, its tooltip the name, file and weight. Colors are those of the page in its light theme (`flamegraph/flamegraph.js`).

use std::fmt::Write;

use crate::flamegraph::escape_markup;
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_profile::transform::{FunctionKey, StackTree};
use spanprof_profile::FrameType;

/// Width of the image without another one, px.
pub const DEFAULT_WIDTH: usize = 1200;
const ROW_HEIGHT: f64 = 16.0;
const TITLE_HEIGHT: f64 = 28.0;
/// Narrower frames are left out, px.
const MIN_WIDTH: f64 = 0.3;
/// Width of a character of the font, px; a shorter text is drawn for narrow frames.
const CHARACTER_WIDTH: f64 = 6.6;
/// Shorter texts are left out.
const MIN_CHARACTERS: usize = 3;

/// The image of a tree, `width` pixels wide; `quantity` formats a weight.
pub fn encode(tree: &StackTree, title: &str, width: usize, quantity: impl Fn(i64) -> String) -> String {
    let total = tree.nodes.first().map_or(0, |root| root.total_weight).max(1);
    let scale = width as f64 / total as f64;
    // Position of the next callee of each node: callees follow each other from the left edge of their caller.
    let mut next_left = vec![0.0; tree.nodes.len()];
    let mut depths = vec![0u32; tree.nodes.len()];
    let mut frames = String::new();
    let mut max_depth = 0;
    for (at, node) in tree.nodes.iter().enumerate() {
        let parent = node.parent as usize;
        let node_width = node.total_weight.max(0) as f64 * scale;
        let left: f64 = next_left[parent];
        if at > 0 {
            next_left[parent] = left + node_width;
            next_left[at] = left;
            depths[at] = depths[parent] + 1;
        }
        if node_width < MIN_WIDTH {
            continue;
        }
        max_depth = max_depth.max(depths[at]);
        let function = &tree.functions[node.function as usize];
        let FunctionKey { name, file, .. } = function;
        let share = node.total_weight as f64 * 100.0 / total as f64;
        let file = if file.is_empty() { String::new() } else { format!("  {file}") };
        let tooltip = format!("{name}{file}  {}  {share:.1}%", quantity(node.total_weight));
        let bottom = -ROW_HEIGHT * f64::from(depths[at] + 1);
        // Writing to a String cannot fail.
        let _ = write!(
            frames,
            r#"<g><title>{}</title><rect x="{left:.1}" y="{bottom:.0}" width="{:.1}" height="{}" fill="{}"/>"#,
            escape(&tooltip),
            (node_width - 0.4).max(MIN_WIDTH),
            ROW_HEIGHT - 1.0,
            if node.function == 0 { tint(GRAY, 8.0) } else { color(function) },
        );
        let characters = (node_width / CHARACTER_WIDTH) as usize;
        if characters >= MIN_CHARACTERS {
            let _ = write!(
                frames,
                r#"<text x="{:.1}" y="{:.0}">{}</text>"#,
                left + 3.0,
                bottom + 11.5,
                escape(&shortened(name, characters)),
            );
        }
        frames.push_str("</g>\n");
    }
    let height = TITLE_HEIGHT + ROW_HEIGHT * f64::from(max_depth + 1);
    format!(
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}""#,
            r#" font-family="monospace" font-size="11">"#,
            "\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
            "<text x=\"6\" y=\"18\" font-size=\"14\">{title}</text>\n",
            "<g transform=\"translate(0 {height})\">\n{frames}</g>\n</svg>\n"
        ),
        width = width,
        height = height,
        title = escape(title),
        frames = frames
    )
}

/// Markup and characters that XML 1.0 excludes (section 2.2) are replaced.
fn escape(text: &str) -> String {
    let is_excluded = |letter: char| letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}');
    escape_markup(&text.replace(is_excluded, "\u{fffd}"))
}

fn shortened(name: &str, characters: usize) -> String {
    if name.chars().count() <= characters {
        return name.to_owned();
    }
    name.chars().take(characters - 1).chain(std::iter::once('…')).collect()
}

/// Hue and saturation (percent) of the root, the runtime and the profiler.
const GRAY: (u32, f64) = (220, 6.0);

/// Hue and saturation (percent) of libraries in every language.
const LIBRARY: (u32, f64) = (212, 30.0);

/// Hue and saturation (percent) of a frame type.
const fn tone(frame_type: FrameType) -> (u32, f64) {
    match frame_type {
        FrameType::Cpython => (44, 72.0),
        FrameType::V8js => (88, 44.0),
        FrameType::Jvm => (162, 40.0),
        FrameType::Native => (330, 40.0),
        FrameType::Kernel => (354, 54.0),
        FrameType::Rust => (20, 66.0),
        _ => (220, 9.0),
    }
}

/// The hue of the frame type; own code is saturated, libraries are blue, runtime and profiler are gray. Hue and lightness vary by the
/// package: the directory of the file, else the first part of the name.
fn color(function: &FunctionKey) -> String {
    let FunctionKey { name, file, frame_type, .. } = function;
    let package = match file.rfind(['/', '\\']) {
        Some(end @ 1..) => &file[..end],
        _ if !file.is_empty() => file,
        _ => name.split(['.', ':']).next().unwrap_or_default(),
    };
    // FNV-1a.
    let seed =
        package.encode_utf16().fold(0x811c_9dc5_u32, |hash, unit| (hash ^ u32::from(unit)).wrapping_mul(0x0100_0193));
    let (hue, saturation) = tone(*frame_type);
    let hue = hue + seed % 19 - 9;
    let vary = f64::from((seed >> 8) % 11) - 5.0;
    match function.origin() {
        CodeOrigin::Library => tint(LIBRARY, vary / 2.0 + 13.0),
        CodeOrigin::Runtime | CodeOrigin::Profiler => tint(GRAY, vary / 2.0),
        CodeOrigin::Own => tint((hue, saturation.max(62.0)), vary),
        CodeOrigin::Unknown => tint((hue, saturation), vary),
    }
}

fn tint((hue, saturation): (u32, f64), vary: f64) -> String {
    format!("hsl({hue},{saturation}%,{}%)", 74.0 + vary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::transform::StackNode;

    fn image(name: &str) -> String {
        let node =
            |parent, function, self_weight, total_weight| StackNode { parent, function, self_weight, total_weight };
        let function = |name: &str| FunctionKey {
            name: name.to_owned(),
            file: "app.py".to_owned(),
            frame_type: FrameType::Cpython,
            ..FunctionKey::default()
        };
        let tree = StackTree {
            type_name: "cpu".to_owned(),
            unit: "nanoseconds".to_owned(),
            functions: vec![function("root"), function(name), function("other")],
            nodes: vec![node(0, 0, 0, 1000), node(0, 1, 250, 250), node(0, 2, 749, 749), node(0, 1, 0, 0)],
        };
        encode(&tree, "shop <1>", DEFAULT_WIDTH, |weight| format!("{weight} ns"))
    }

    #[test]
    fn frames_are_as_wide_as_their_share() {
        let image = image("main");
        assert!(image.contains(r#"<title>main  app.py  250 ns  25.0%</title><rect x="0.0" y="-32" width="299.6""#));
        assert!(image.contains(r#"<rect x="300.0" y="-32" width="898.4""#), "{image}");
        assert_eq!(image.matches("<rect").count(), 4, "background, root, two frames");
        assert!(image.contains(r#"viewBox="0 0 1200 60""#), "{image}");
    }

    #[test]
    fn frames_have_the_colors_of_the_page() {
        let fill = |name: &str, file: &str, frame_type| {
            color(&FunctionKey { name: name.to_owned(), file: file.to_owned(), frame_type, ..FunctionKey::default() })
        };
        // As the page computes them.
        assert_eq!(fill("price", "/srv/shop/app.py", FrameType::Cpython), "hsl(44,72%,79%)");
        assert_eq!(fill("get", "/usr/lib/python3.11/queue.py", FrameType::Cpython), "hsl(212,30%,87%)");
        assert_eq!(fill("_PyEval_EvalFrameDefault", "/usr/bin/python3.11", FrameType::Native), "hsl(220,6%,75%)");
        assert_eq!(fill("spanprof", "", FrameType::Native), "hsl(220,6%,74%)");
        assert_eq!(fill("java.util.HashMap.put", "", FrameType::Unspecified), "hsl(214,9%,74%)");
        assert!(image("main").contains(r#"height="15" fill="hsl(220,6%,82%)"/>"#), "the root");
        let script = include_str!("flamegraph/flamegraph.js");
        let frame_types = [
            FrameType::Unspecified,
            FrameType::Cpython,
            FrameType::V8js,
            FrameType::Jvm,
            FrameType::Native,
            FrameType::Kernel,
            FrameType::Rust,
        ];
        for frame_type in frame_types {
            let (key, (hue, saturation)) = (frame_type.as_str().unwrap_or(r#""""#), tone(frame_type));
            let of_type = script.split_once(&format!("{key}: [")).and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
            assert!(of_type.ends_with(&format!(", {hue}, {saturation}")), "{key}: {of_type}");
        }
    }

    #[test]
    fn names_become_neither_markup_nor_invalid_characters() {
        let image = image("<script>\u{1}&\"]]>");
        assert!(!image.contains("<script>") && !image.contains('\u{1}'));
        assert!(image.contains("&lt;script&gt;\u{fffd}&amp;&quot;]]&gt;") && image.contains("shop &lt;1&gt;"));
    }
}
