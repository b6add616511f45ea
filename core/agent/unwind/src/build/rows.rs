//! Turns `.eh_frame` into rows of a table. Normal threads only; the bytes may be anything.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, Encoding, EndianSlice, LittleEndian, Operation, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Vendor,
};

use super::image::UnwindInformation;
use crate::rule::{
    self, CallerFramePointer, FrameAddress, ReturnAddress, RuleNumbers, UnwindRule, FRAME_POINTER, MAX_OFFSET, NO_RULE,
    STACK_POINTER,
};
use crate::table::{Row, UnwindTable};

/// The longest functions have some 3,000.
const MAX_ROWS_OF_FUNCTION: usize = 65_536;
/// libarrow and OpenBLAS have half a million.
const MAX_ROWS: usize = 4 << 20;
/// Code between two functions that is padding.
const MAX_PADDING: u32 = 64;
/// CPU time for one file, which takes 15 to 20 ms per MB of `.eh_frame`.
const MAX_CPU_NS: u64 = 2_000_000_000;
const RETURN_ADDRESS: Register = Register(rule::RETURN_ADDRESS as u16);

type Section<'a> = EhFrame<EndianSlice<'a, LittleEndian>>;

/// The table of an object; `None` beyond a limit, once `is_canceled` is true, or if the unwind information has no function.
pub(super) fn table(
    information: &UnwindInformation,
    code: &Range<u64>,
    numbers: &mut RuleNumbers,
    is_canceled: &dyn Fn() -> bool,
) -> Option<UnwindTable> {
    let code_bytes = u32::try_from(code.end.checked_sub(code.start)?).ok()?;
    let mut section = EhFrame::new(&information.bytes, LittleEndian);
    if cfg!(target_arch = "aarch64") {
        // `DW_CFA_AARCH64_negate_ra_state`: walks remove authentication codes from every return address.
        section.set_vendor(Vendor::AArch64);
    }
    let bases = BaseAddresses::default().set_eh_frame(information.address).set_text(code.start);
    let mut context = UnwindContext::new();
    let mut last_cie = None;
    let mut entries = section.entries(&bases);
    let (mut rows, mut ends, mut functions) = (Vec::new(), Vec::new(), 0u32);
    let begin_ns = spanprof_os::current_thread_cpu_ns();
    // An entry that cannot be parsed hides those behind it.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let function = partial.parse(|section, bases, offset| match &last_cie {
            Some((known, cie)) if *known == offset => Ok(Clone::clone(cie)),
            _ => {
                let cie = section.cie_from_offset(bases, offset)?;
                last_cie = Some((offset, cie.clone()));
                Ok(cie)
            }
        });
        let Ok(function) = function else { continue };
        let addresses = function.initial_address()..function.end_address();
        if addresses.is_empty() || !code.contains(&addresses.start) || addresses.end > code.end {
            continue;
        }
        functions += 1;
        // Reading this clock is a system call.
        let is_late = || spanprof_os::current_thread_cpu_ns().saturating_sub(begin_ns) > MAX_CPU_NS;
        if rows.len() > MAX_ROWS || functions % 64 == 0 && (is_canceled() || is_late()) {
            return None;
        }
        let (is_signal_frame, encoding) = (function.is_signal_trampoline(), function.cie().encoding());
        let converter = RowConverter { section: &section, encoding, is_signal_frame };
        let first_row = rows.len();
        if let Ok(mut function_rows) = function.rows(&section, &bases, &mut context) {
            // A row that cannot be evaluated ends the function: what follows would have the wrong rule.
            while let Ok(Some(row)) = function_rows.next_row() {
                if rows.len() - first_row > MAX_ROWS_OF_FUNCTION {
                    break;
                }
                if addresses.contains(&row.start_address()) && row.start_address() < row.end_address() {
                    let address = (row.start_address() - code.start) as u32;
                    let begins_function = rows.len() == first_row;
                    rows.push(Row { address, rule: numbers.number(converter.rule(row)), begins_function });
                    ends.push((row.end_address().min(addresses.end) - code.start) as u32);
                }
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    close_gaps(&mut rows, ends);
    Some(UnwindTable::of_rows(rows, code_bytes))
}

/// Adds a row without a rule where code follows a row that ends, unless it is padding.
fn close_gaps(rows: &mut Vec<Row>, ends: Vec<u32>) {
    let mut starts: Vec<u32> = rows.iter().map(|row| row.address).collect();
    starts.sort_unstable();
    for end in ends {
        let next = starts.get(starts.partition_point(|start| *start < end));
        if next.is_none_or(|next| next - end > MAX_PADDING) {
            rows.push(Row { address: end, rule: NO_RULE, begins_function: false });
        }
    }
}

struct RowConverter<'s, 'a> {
    section: &'s Section<'a>,
    encoding: Encoding,
    is_signal_frame: bool,
}

impl RowConverter<'_, '_> {
    fn rule(&self, row: &UnwindTableRow<usize>) -> UnwindRule {
        if self.is_signal_frame {
            return UnwindRule::without_frame(FrameAddress::SignalFrame);
        }
        if row.register(RETURN_ADDRESS) == Some(RegisterRule::Undefined) {
            return UnwindRule::without_frame(FrameAddress::Root);
        }
        match (self.frame_address(row.cfa()), return_address(row)) {
            (Some(frame_address), Some(return_address)) => {
                UnwindRule { frame_address, frame_pointer: self.frame_pointer(row), return_address }
            }
            _ => UnwindRule::NONE,
        }
    }

    fn frame_address(&self, rule: &CfaRule<usize>) -> Option<FrameAddress> {
        match rule {
            CfaRule::RegisterAndOffset { register, offset } => register_and_offset(*register, *offset),
            CfaRule::Expression(expression) => match *self.operations(expression)?.as_slice() {
                [Operation::RegisterOffset { register, offset, .. }] => register_and_offset(register, offset),
                [Operation::RegisterOffset { register, offset, .. }, Operation::Deref { size: 8, .. }] => {
                    loaded(register, offset, 0)
                }
                [Operation::RegisterOffset { register, offset, .. }, Operation::Deref { size: 8, .. }, Operation::PlusConstant { value }] => {
                    loaded(register, offset, value)
                }
                // What linkers write for a lazy linkage table (`elf_x86_64_eh_frame_plt` in binutils 2.20–2.45).
                [Operation::RegisterOffset { register: stack_pointer, offset: 8, .. }, Operation::RegisterOffset { register: RETURN_ADDRESS, offset: 0, .. }, Operation::UnsignedConstant { value: 15 }, Operation::And, Operation::UnsignedConstant { value: pushed_at @ 0..=15 }, Operation::Ge, Operation::UnsignedConstant { value: 3 }, Operation::Shl, Operation::Plus]
                    if stack_pointer == Register(u16::from(STACK_POINTER)) =>
                {
                    Some(FrameAddress::LinkageTable { pushed_at: pushed_at as u8 })
                }
                _ => None,
            },
        }
    }

    fn frame_pointer(&self, row: &UnwindTableRow<usize>) -> CallerFramePointer {
        let frame_pointer = Register(u16::from(FRAME_POINTER));
        match row.register(frame_pointer) {
            None | Some(RegisterRule::SameValue) => CallerFramePointer::Unchanged,
            Some(RegisterRule::Offset(offset)) => {
                saved_words(offset).map_or(CallerFramePointer::Lost, |words| CallerFramePointer::Saved { words })
            }
            Some(RegisterRule::Expression(expression)) => match self.operations(&expression).as_deref() {
                Some([Operation::RegisterOffset { register, offset: 0, .. }]) if *register == frame_pointer => {
                    CallerFramePointer::SavedAtFramePointer
                }
                _ => CallerFramePointer::Lost,
            },
            Some(_) => CallerFramePointer::Lost,
        }
    }

    /// The operations of an expression; `None` for a long or invalid one.
    fn operations(
        &self,
        expression: &UnwindExpression<usize>,
    ) -> Option<Vec<Operation<EndianSlice<'_, LittleEndian>>>> {
        const MAX_OPERATIONS: usize = 16;
        let mut operations = expression.get(self.section).ok()?.operations(self.encoding);
        let mut list = Vec::new();
        while let Some(operation) = operations.next().ok()? {
            if list.len() == MAX_OPERATIONS {
                return None;
            }
            list.push(operation);
        }
        Some(list)
    }
}

/// The place of the return address; `None` for one that no rule expresses.
fn return_address(row: &UnwindTableRow<usize>) -> Option<ReturnAddress> {
    match row.register(RETURN_ADDRESS) {
        Some(RegisterRule::Offset(offset)) => {
            let saved = ReturnAddress::Saved { words: saved_words(offset)? };
            (cfg!(target_arch = "aarch64") || saved == ReturnAddress::OF_CALL).then_some(saved)
        }
        None | Some(RegisterRule::SameValue) if cfg!(target_arch = "aarch64") => Some(ReturnAddress::InRegister),
        _ => None,
    }
}

/// The words between the frame address and a saved register; `None` if a rule cannot express them.
fn saved_words(offset: i64) -> Option<i16> {
    let words = i16::try_from(offset / 8).ok()?;
    (offset % 8 == 0 && words != 0 && words > i16::MIN && words < i16::MAX).then_some(words)
}

/// The number of a general register.
fn general(register: Register) -> Option<u8> {
    const REGISTERS: u8 = if cfg!(target_arch = "x86_64") { 16 } else { 32 };
    u8::try_from(register.0).ok().filter(|number| *number < REGISTERS)
}

fn register_and_offset(register: Register, offset: i64) -> Option<FrameAddress> {
    Some(FrameAddress::Register { register: general(register)?, offset: offset_of_rule(offset)? })
}

/// Of x86-64 only: compilers for arm64 align a stack by the frame pointer.
fn loaded(register: Register, offset: i64, added: u64) -> Option<FrameAddress> {
    let words = u8::try_from(added / 8).ok().filter(|_| added.is_multiple_of(8) && cfg!(target_arch = "x86_64"))?;
    Some(FrameAddress::Loaded { register: general(register)?, offset: offset_of_rule(offset)?, words })
}

fn offset_of_rule(offset: i64) -> Option<i32> {
    i32::try_from(offset).ok().filter(|offset| (-MAX_OFFSET..=MAX_OFFSET).contains(offset))
}

#[cfg(test)]
mod tests {
    use super::super::image;
    use super::*;
    use crate::walks_by_table_of;
    use std::time::{Duration, Instant};

    use spanprof_signal::split_mix::Sequence;

    /// The C library's unwind information up to `bytes`, and its code.
    fn of_the_c_library(bytes: usize) -> (UnwindInformation, Range<u64>) {
        let images = image::images();
        let address = libc::getenv as *const () as u64;
        let image = images.iter().find(|image| image.code.contains(&address)).unwrap();
        let mut information = image.unwind_information().unwrap();
        information.bytes.truncate(bytes);
        (information, image.code.clone())
    }

    #[test]
    #[cfg_attr(target_env = "musl", ignore = "the C library has no unwind information")]
    fn the_c_library_has_a_rule_at_each_of_its_functions() {
        let (information, code) = of_the_c_library(usize::MAX);
        let mut numbers = RuleNumbers::default();
        let canceled = table(&information, &code, &mut numbers, &|| true);
        assert!(canceled.is_none());
        let table = table(&information, &code, &mut numbers, &|| false).unwrap();
        // An entry has four bytes; distributions differ in size.
        assert!((10_000..2 << 20).contains(&table.bytes()), "{}", table.bytes());
        for function in [libc::getenv as *const (), libc::malloc as *const (), libc::poll as *const ()] {
            let offset = (function as u64 - code.start) as u32;
            let rule = UnwindRule::of_number(table.rule(offset));
            // A call pushes the return address on x86-64.
            let at_entry = FrameAddress::Register {
                register: STACK_POINTER,
                offset: if cfg!(target_arch = "x86_64") { 8 } else { 0 },
            };
            assert_eq!(rule, UnwindRule::without_frame(at_entry));
            assert_eq!(table.function_start(offset + 3), Some(offset));
        }
    }

    #[test]
    fn changed_unwind_information_makes_no_panic_and_takes_bounded_time() {
        let (original, code) = of_the_c_library(24 << 10);
        let mut random = Sequence::new(0x5eed);
        let begin = Instant::now();
        let mut built = 0;
        for _ in 0..400 {
            let mut bytes = original.bytes.clone();
            for _ in 0..1 + random.next() % 40 {
                let position = random.next() as usize % bytes.len();
                bytes[position] = random.next() as u8;
            }
            built += usize::from(walks_by_table_of(&bytes, original.address, &code, random.next()));
        }
        assert!(built > 100, "{built}");
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    }
}
