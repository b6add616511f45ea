//! Names of the classes of sampled objects, which are the leaf frames of allocation stacks. A name has a number that is never
//! reused, so that a raw frame keeps no class alive. Not for signal handlers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::method_info::class_name;

/// Maximum number of names; further classes share the first one. About 8 MiB.
const MAX_NAMES: usize = 65_536;
const OTHER_CLASSES: &str = "[other_classes]";

struct ClassNames {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

fn class_names() -> MutexGuard<'static, ClassNames> {
    static CLASS_NAMES: OnceLock<Mutex<ClassNames>> = OnceLock::new();
    let first = || Mutex::new(ClassNames { numbers: HashMap::new(), names: vec![OTHER_CLASSES.into()] });
    CLASS_NAMES.get_or_init(first).lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClassNames {
    fn number(&mut self, name: &str, max_names: usize) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.names.len() >= max_names {
            return 0;
        }
        let (number, name): (u32, Arc<str>) = (self.names.len() as u32, name.into());
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

/// The number of the class with this JVMTI signature.
pub fn number_of(signature: &str) -> u32 {
    let name = name_in_source(signature);
    class_names().number(&name, MAX_NAMES)
}

/// The name with this number.
pub fn name(number: u32) -> Arc<str> {
    class_names().names.get(number as usize).cloned().unwrap_or_else(|| OTHER_CLASSES.into())
}

/// Number of names so far.
pub fn count() -> usize {
    class_names().numbers.len()
}

/// The class name of a signature as in the source: `byte[][]` of `[[B`, `com.shop.Cart` of `Lcom/shop/Cart;`.
pub fn name_in_source(signature: &str) -> String {
    let element = signature.trim_start_matches('[');
    let name = match element {
        "B" => "byte".to_owned(),
        "C" => "char".to_owned(),
        "D" => "double".to_owned(),
        "F" => "float".to_owned(),
        "I" => "int".to_owned(),
        "J" => "long".to_owned(),
        "S" => "short".to_owned(),
        "Z" => "boolean".to_owned(),
        _ => class_name(element.strip_prefix('L').and_then(|name| name.strip_suffix(';')).unwrap_or(element)),
    };
    name + &"[]".repeat(signature.len() - element.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_converted_to_the_class_name_of_the_source() {
        for (signature, expected) in [
            ("Lcom/shop/Cart;", "com.shop.Cart"),
            ("Lcom/shop/Cart$$Lambda.0x0000000800c03000;", "com.shop.Cart$$Lambda"),
            ("[B", "byte[]"),
            ("[[Ljava/lang/String;", "java.lang.String[][]"),
            ("LB;", "B"),
        ] {
            assert_eq!(name_in_source(signature), expected);
        }
    }

    #[test]
    fn equal_names_share_a_number_and_names_beyond_the_limit_share_the_first() {
        let mut names = ClassNames { numbers: HashMap::new(), names: vec![OTHER_CLASSES.into()] };
        assert_eq!(["a", "b", "a", "c", "d", "b"].map(|name| names.number(name, 3)), [1, 2, 1, 0, 0, 2]);
    }
}
