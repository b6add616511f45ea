//! The documents' blocks in Java that are no files: the newest JDK compiles each in a class of its own, against the JAR, the Servlet API
//! and Spring Boot. Settings are methods of a builder, so the compiler finds those that do not exist.

use std::path::Path;

use super::runtimes;
use crate::code_blocks::code_blocks;
use crate::step::StepResult;
use crate::{artifact, documents, progress, scratch, workspace};

/// What the blocks use without an import.
const IMPORTS: &str = "import io.spanprof.*;
import io.spanprof.servlet.*;
import jakarta.servlet.*;
import java.util.*;
import java.util.concurrent.*;
import org.springframework.boot.web.servlet.*;
import org.springframework.context.annotation.Bean;
";
/// A preview in Java 21 to 24 too, with another API.
const SUBTASKS: (&str, u32) = ("StructuredTaskScope", 25);

/// Compiles the blocks against `jar`.
pub fn compile_blocks(jar: &Path) -> StepResult {
    let Some(java) = runtimes::all()?.pop() else { return Ok(()) };
    let has_subtasks = java.version >= SUBTASKS.1;
    if !has_subtasks {
        progress::print(&format!("code blocks with {} are left out: they need a JDK {}", SUBTASKS.0, SUBTASKS.1));
    }
    let sources = scratch::empty("docs-blocks-java/sources")?;
    let program = workspace::root().join("xtask/documents/java");
    artifact::copy(&program.join("Program.java"), &sources.join("Program.java"))?;
    if has_subtasks {
        artifact::copy(&program.join("Subtasks.java"), &sources.join("Subtasks.java"))?;
    }
    // The first program runs in `docs::first_results`.
    for page in documents::paths()?.iter().filter(|page| *page != documents::FIRST_PROGRAMS) {
        let text = scratch::read(&workspace::root().join(page))?;
        for block in code_blocks(&text).iter().filter(|block| block.language == "java" && block.file.is_none()) {
            let parent = if block.text.contains(SUBTASKS.0) { "Subtasks" } else { "Program" };
            if parent == "Program" || has_subtasks {
                let name = format!("{}_{}", page.replace(['/', '.', '-'], "_"), block.line);
                scratch::write(&sources.join(format!("{name}.java")), &class(&name, parent, &block.text))?;
            }
        }
    }
    runtimes::maven("compile the code blocks in Java", &java)
        .args(["--quiet", "-f"])
        .arg(program.join("pom.xml"))
        .arg("compiler:compile")
        .arg(format!("-Dblocks.jar={}", jar.display()))
        .arg(format!("-Dblocks.sources={}", sources.display()))
        .arg(format!("-Dblocks.build={}", sources.with_file_name("build").display()))
        .arg(format!("-Dblocks.java={}", java.version))
        .run()
}

/// A class with the methods of a block, or with one method that has its statements.
fn class(name: &str, parent: &str, block: &str) -> String {
    let (imports, code): (Vec<&str>, Vec<&str>) = block.lines().partition(|line| line.starts_with("import "));
    let (imports, code) = (imports.join("\n"), code.join("\n"));
    let members = if code.trim_start().starts_with("public ") || code.trim_start().starts_with('@') {
        code
    } else {
        format!("void block() throws Exception {{\n{code}\n}}")
    };
    format!("{imports}\n{IMPORTS}class {name} extends {parent} {{\n{members}\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_become_a_method_and_imports_stay_outside() {
        let text = class("page_4", "Program", "import a.B;\n\nB.run();\n");
        assert!(text.starts_with("import a.B;\nimport io.spanprof.*;"), "{text}");
        assert!(text.ends_with("class page_4 extends Program {\nvoid block() throws Exception {\n\nB.run();\n}\n}\n"));
        let text = class("page_9", "Program", "public void stop() {\n}\n");
        assert!(text.ends_with("extends Program {\npublic void stop() {\n}\n}\n"), "{text}");
    }
}
