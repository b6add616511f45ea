//! The VM's layout as named numbers, for recorded stacks. Part of tests and of builds that record.

use std::collections::BTreeMap;

use super::layout::{BlobPart, DebugInfo, VmLayout, MAX_HEAPS};

type Tables = BTreeMap<String, u64>;

/// `interpreted_bcp` of Java 9 and later.
const DEFAULT_BCP: usize = 64;

/// Fields that are one number each.
macro_rules! number_fields {
    ($($field:ident)*) => {
        fn write_numbers(layout: &VmLayout, tables: &mut Tables) {
            $(tables.insert(stringify!($field).to_owned(), layout.$field as u64);)*
        }

        /// The layout with these numbers.
        ///
        /// # Errors
        /// The name of a missing number.
        pub fn read(tables: &Tables) -> Result<VmLayout, String> {
            let number = |name: &str| tables.get(name).copied().ok_or_else(|| name.to_owned());
            let offset = |name: &str| number(name).map(|number| number as usize);
            let optional = |name: &str| tables.get(name).map(|number| *number as usize);
            let mut heaps = [0; MAX_HEAPS];
            for (index, heap) in heaps.iter_mut().enumerate() {
                *heap = optional(&format!("heap_{index}")).unwrap_or(0);
            }
            Ok(VmLayout {
                $($field: number(stringify!($field))? as _,)*
                interpreter: (offset("interpreter_begin")?, offset("interpreter_end")?),
                interpreted_bcp: optional("interpreted_bcp").unwrap_or(DEFAULT_BCP),
                heaps,
                thread_state: optional("thread_state"),
                saved_exception_pc: optional("saved_exception_pc"),
                const_method_words: optional("const_method_words"),
                continuation_entry: optional("continuation_entry"),
                // For names, which recorded stacks have.
                pool_tags: None,
                has_file_in_class: false,
                blob_code_begin: match optional("blob_code_begin_pointer") {
                    Some(at) => BlobPart::Pointer(at),
                    None => BlobPart::Offset(offset("blob_code_begin_offset")?),
                },
                debug_info: match optional("immutable_data") {
                    Some(immutable) => DebugInfo::Separate {
                        immutable,
                        pc_descs: offset("pc_descs")?,
                        data: offset("scopes_data")?,
                        mutable: offset("mutable_data")?,
                        relocation_size: offset("relocation_size")?,
                    },
                    None => DebugInfo::InBlob {
                        pc_descs: offset("pc_descs")?,
                        pc_descs_end: offset("pc_descs_end")?,
                        data: match optional("scopes_data_offset") {
                            Some(at) => BlobPart::Offset(at),
                            None => BlobPart::Pointer(offset("scopes_data")?),
                        },
                        metadata: offset("metadata")?,
                    },
                },
            })
        }
    };
}

number_fields! {
    code_low code_high call_stub_return compile_id stack_base anchor heap_low heap_high heap_segments segment_shift block_used
    continuation_return call_wrapper wrapper_anchor blob_name blob_frame_size blob_frame_complete compiled_method original_pc
    unsigned5_base const_method const_method_size constants code_size name_index flags has_lines holder file_index pool_size
    class_name symbol_length symbol_body anchor_sp anchor_pc anchor_fp
}

/// The numbers of a layout.
pub fn of(layout: &VmLayout) -> Tables {
    let mut tables = Tables::new();
    write_numbers(layout, &mut tables);
    let mut set = |name: &str, number: usize| tables.insert(name.to_owned(), number as u64);
    set("interpreter_begin", layout.interpreter.0);
    set("interpreter_end", layout.interpreter.1);
    for (index, heap) in layout.heaps.iter().enumerate().filter(|(_, heap)| **heap != 0) {
        set(&format!("heap_{index}"), *heap);
    }
    for (name, optional) in [
        ("thread_state", layout.thread_state),
        ("saved_exception_pc", layout.saved_exception_pc),
        ("const_method_words", layout.const_method_words),
        ("continuation_entry", layout.continuation_entry),
    ] {
        if let Some(offset) = optional {
            set(name, offset);
        }
    }
    if layout.interpreted_bcp != DEFAULT_BCP {
        set("interpreted_bcp", layout.interpreted_bcp);
    }
    match layout.blob_code_begin {
        BlobPart::Pointer(at) => set("blob_code_begin_pointer", at),
        BlobPart::Offset(at) => set("blob_code_begin_offset", at),
    };
    let debug_info = match layout.debug_info {
        DebugInfo::InBlob { pc_descs, pc_descs_end, data, metadata } => {
            let (name, data) = match data {
                BlobPart::Pointer(at) => ("scopes_data", at),
                BlobPart::Offset(at) => ("scopes_data_offset", at),
            };
            vec![("pc_descs", pc_descs), ("pc_descs_end", pc_descs_end), (name, data), ("metadata", metadata)]
        }
        DebugInfo::Separate { immutable, pc_descs, data, mutable, relocation_size } => vec![
            ("immutable_data", immutable),
            ("pc_descs", pc_descs),
            ("scopes_data", data),
            ("mutable_data", mutable),
            ("relocation_size", relocation_size),
        ],
    };
    for (name, offset) in debug_info {
        set(name, offset);
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_equals_that_of_its_numbers() {
        let names =
            ["interpreter_begin", "interpreter_end", "heap_0", "heap_2", "thread_state", "blob_code_begin_offset"];
        let in_blob = ["pc_descs", "pc_descs_end", "scopes_data", "metadata"];
        let in_java_8 = ["pc_descs", "pc_descs_end", "scopes_data_offset", "metadata", "interpreted_bcp"];
        let separate = ["immutable_data", "pc_descs", "scopes_data", "mutable_data", "relocation_size"];
        let mut numbers = Tables::new();
        let missing = loop {
            // Each missing number is reported by its name.
            match read(&numbers) {
                Err(name) if numbers.contains_key(&name) => break Some(name),
                Err(name) => numbers.insert(name, 100 + numbers.len() as u64),
                Ok(_) => break None,
            };
        };
        assert_eq!(missing, None);
        for debug_info in [&in_blob[..], &in_java_8[..], &separate[..]] {
            let mut numbers = numbers.clone();
            numbers.retain(|name, _| !in_blob.iter().chain(&in_java_8).chain(&separate).any(|other| other == name));
            for (index, name) in names.iter().chain(debug_info).enumerate() {
                numbers.insert((*name).to_owned(), 1000 + index as u64);
            }
            // A small signed number, and small fields.
            numbers.insert("call_wrapper".to_owned(), -48i64 as u64);
            let mut expected = numbers.clone();
            let written = of(&read(&numbers).unwrap());
            expected.retain(|name, _| written.contains_key(name));
            assert_eq!(written, expected);
            assert!(debug_info.iter().chain(&names).all(|name| written.contains_key(*name)));
        }
    }
}
