//! Places of baseline code, which follows its byte code operation by operation: V8 keeps how many bytes of machine code
//! each operation became, and the places are those of the byte code. Pure.

use super::{script_offset, Form, Position, NOWHERE};

/// What V8 has of one piece of baseline code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Bytes of machine code before the first operation, then of each: unsigned VLQ.
    pub steps: Box<[u8]>,
    pub byte_code: Box<[u8]>,
    pub form: Form,
    /// The line table of the byte code.
    pub table: Box<[u8]>,
}

/// Knows how long operations are.
pub trait Operations {
    /// Bytes of the operation that `byte_code` begins with, prefix and all.
    fn length(&self, byte_code: &[u8]) -> Option<usize>;
}

impl Baseline {
    /// The places of its `len` bytes of machine code; `None` unless all parts agree to the last byte.
    pub fn positions(&self, len: usize, operations: Option<&impl Operations>) -> Option<Box<[Position]>> {
        let operations = operations?;
        let places = self.form.positions(&self.table, self.byte_code.len())?;
        let mut steps = &*self.steps;
        let mut machine = unsigned(&mut steps)?;
        let mut operation = 0usize;
        let mut positions: Vec<Position> = Vec::new();
        while !steps.is_empty() {
            let length = operations.length(self.byte_code.get(operation..)?)?;
            let place = script_offset(&places, u32::try_from(operation).ok()?).unwrap_or(NOWHERE);
            if positions.last().is_none_or(|last| last.1 != place) {
                positions.push((machine, place));
            }
            operation += length;
            machine = machine.checked_add(unsigned(&mut steps)?)?;
        }
        (operation == self.byte_code.len() && machine as usize <= len).then(|| positions.into())
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.steps.len() + self.byte_code.len() + self.table.len()
    }
}

fn unsigned(left: &mut &[u8]) -> Option<u32> {
    let (mut bits, mut shift) = (0u32, 0);
    loop {
        let (byte, rest) = left.split_first()?;
        *left = rest;
        bits |= ((byte & 0x7f) as u32).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(bits);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::positions::FORMS;

    /// An operation is as long as its first byte says.
    struct Said;

    impl Operations for Said {
        fn length(&self, byte_code: &[u8]) -> Option<usize> {
            byte_code.first().map(|byte| *byte as usize).filter(|length| *length > 0)
        }
    }

    fn baseline(steps: &[u8]) -> Baseline {
        // Operations at 0, 2, 5, 6; places 9 from 0 on, 30 from 5 on.
        let byte_code = [2, 0, 3, 0, 0, 1, 4, 0, 0, 0].into();
        let table = [2, 40, 10, 84].into();
        Baseline { steps: steps.into(), byte_code, form: FORMS[0], table }
    }

    #[test]
    fn machine_code_has_the_places_of_the_operations_it_came_from() {
        let positions = baseline(&[20, 4, 0x81, 1, 6, 7]).positions(200, Some(&Said));
        assert_eq!(positions.as_deref(), Some(&[(20, 9), (20 + 4 + 129, 30)][..]));
    }

    #[test]
    fn parts_that_do_not_agree_give_no_places() {
        let none = |steps: &[u8], len| assert_eq!(baseline(steps).positions(len, Some(&Said)), None, "{steps:?}");
        none(&[20, 4, 5, 6], 200);
        none(&[20, 4, 5, 6, 7, 8], 200);
        none(&[20, 4, 5, 6, 7], 41);
        none(&[20, 4, 5, 6, 0x87], 200);
        assert_eq!(baseline(&[20, 4, 5, 6, 7]).positions(200, None::<&Said>), None);
    }
}
