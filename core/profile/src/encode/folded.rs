//! Folded stacks: `root;…;leaf weight` lines, sorted. The format has no escapes: a `;` in a name is written as `:`, and a
//! control character, such as a line break or a terminal escape, as a space.

use std::fmt::Write;

use crate::transform::StackTree;

/// The lines of a stack tree. The unit is [`StackTree::unit`].
pub fn encode(tree: &StackTree) -> String {
    let names: Vec<String> = tree.functions.iter().map(|function| escape(&function.name)).collect();
    // The nodes from the root to the current node; parents come before children.
    let mut lines = Vec::new();
    let mut path: Vec<u32> = Vec::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        while path.last().is_some_and(|last| *last != node.parent) {
            path.pop();
        }
        path.push(at as u32);
        if node.self_weight != 0 {
            let mut line = String::new();
            for (nth, step) in path.iter().enumerate() {
                if nth > 0 {
                    line.push(';');
                }
                line.push_str(&names[tree.nodes[*step as usize].function as usize]);
            }
            // Writing to a String cannot fail.
            let _ = writeln!(line, " {}", node.self_weight);
            lines.push(line);
        }
    }
    if let Some(root) = tree.nodes.first().filter(|root| root.self_weight != 0) {
        lines.push(format!("[no stack] {}\n", root.self_weight));
    }
    lines.sort_unstable();
    lines.concat()
}

fn escape(name: &str) -> String {
    name.replace(';', ":").replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn separators_and_control_characters_in_names_are_replaced() {
        assert_eq!(escape("a;b\r\n\u{1b}[31mc\u{9b}d é"), "a:b   [31mc d é");
    }
}
