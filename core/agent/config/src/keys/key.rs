//! One row of the table of configuration keys. Called by the modules of the configuration. Not here: the table (`keys`).

use crate::types::shape::Shape;

/// Smallest and largest value of a key, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Smallest allowed value.
    pub min: f64,
    /// Largest allowed value.
    pub max: f64,
}

impl Bounds {
    /// Whether a value in the key's unit is allowed.
    pub(crate) fn contain(&self, magnitude: f64) -> bool {
        (self.min..=self.max).contains(&magnitude)
    }
}

/// A key of the configuration, as documented.
#[derive(Clone, Debug)]
pub struct Key {
    /// Name in code and files; in the environment with the prefix `SPANPROF_` and in upper case.
    pub name: &'static str,
    /// The values that it takes.
    pub shape: Shape,
    /// Unit of its value; empty when it has none.
    pub unit: &'static str,
    /// Smallest and largest value.
    pub bounds: Option<Bounds>,
    /// Whether `update` may change it while running.
    pub live: bool,
    /// Whether its value is never shown.
    pub secret: bool,
    /// Description.
    pub doc: &'static str,
}

impl Key {
    /// The key's variable of the environment.
    pub fn environment_name(&self) -> String {
        format!("SPANPROF_{}", self.name.to_ascii_uppercase())
    }

    /// Its bounds with their unit, for error messages; `None` when it has none.
    pub(crate) fn range(&self) -> Option<String> {
        let bounds = self.bounds?;
        Some(format!("{} and {} {}", bounds.min, bounds.max, self.unit).trim_end().to_owned())
    }

    /// The type of its value and its bounds, for "must be …".
    pub(crate) fn expected(&self) -> String {
        let values = self.shape.expected();
        self.range().map_or(values.clone(), |range| format!("{values} between {range}"))
    }
}
