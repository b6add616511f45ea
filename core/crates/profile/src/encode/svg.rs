//! A flame graph as one SVG image: for documents and viewers without scripts. The root is at the bottom; the text of a frame
//! is its name, its tooltip the name, file and weight.

use std::fmt::Write;

use super::flamegraph::escape_markup;
use crate::transform::{FunctionKey, StackTree};

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
        let FunctionKey { name, file, .. } = &tree.functions[node.function as usize];
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
            color(name),
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

/// A color by the name, so that a function has the same one in every image.
fn color(name: &str) -> String {
    // FNV-1a.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("hsl({},{}%,{}%)", 10 + hash % 40, 70 + (hash >> 8) % 20, 66 + (hash >> 16) % 12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::StackNode;
    use crate::FrameType;

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
    fn names_become_neither_markup_nor_invalid_characters() {
        let image = image("<script>\u{1}&\"]]>");
        assert!(!image.contains("<script>") && !image.contains('\u{1}'));
        assert!(image.contains("&lt;script&gt;\u{fffd}&amp;&quot;]]&gt;") && image.contains("shop &lt;1&gt;"));
    }
}
