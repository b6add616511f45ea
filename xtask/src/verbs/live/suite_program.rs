//! The program of a suite in one language, with the package for tests. Sources are in `xtask/live/<suite>`; the suite appends the
//! arguments.

use std::path::PathBuf;

use crate::artifact;
use crate::languages::python::{self, Venv};
use crate::languages::{java, node};
use crate::step::StepResult;
use crate::workspace;

pub struct SuiteProgram {
    pub language: &'static str,
    pub words: Vec<PathBuf>,
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl SuiteProgram {
    pub fn python(suite: &str, file: &str) -> StepResult<Self> {
        let venv = Venv::with("live", &python::runtimes::preferred()?, &[])?;
        venv.install_wheel(&python::package::build_for_tests()?)?;
        Ok(Self { language: "python", words: vec![venv.python(), source(suite, file)], variables: Vec::new() })
    }

    pub fn node(suite: &str, file: &str) -> StepResult<Self> {
        node::package::build_for_tests()?;
        let modules = node::runtimes::install(&node::package::pack_for_tests()?, &[], &format!("live-{suite}-node"))?;
        let words = vec![node::runtimes::preferred()?.program, source(suite, file)];
        Ok(Self { language: "node", words, variables: vec![("NODE_PATH", modules)] })
    }

    pub fn java(suite: &str, file: &str) -> StepResult<Self> {
        let classes = format!("live-{suite}-java");
        let words = java::live::command_of(&source(suite, file), &java::package::for_tests()?, &classes)?;
        Ok(Self { language: "java", words, variables: Vec::new() })
    }

    /// The program is a mode of `spanprof-live`, with the name of the suite.
    pub fn rust(suite: &str) -> StepResult<Self> {
        let words = vec![artifact::for_tests()?.join("spanprof-live"), suite.into()];
        Ok(Self { language: "rust", words, variables: Vec::new() })
    }
}

fn source(suite: &str, file: &str) -> PathBuf {
    workspace::root().join("xtask/live").join(suite).join(file)
}
