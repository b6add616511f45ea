//! Java: JDKs and Maven, the JAR, JUnit.

pub mod bench;
pub mod live;
pub mod package;
pub mod runtimes;
pub mod suite;
