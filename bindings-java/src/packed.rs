//! Lists of strings packed into one byte array: each string's length in four bytes of native byte order, then UTF-8. Java
//! and the native methods pass lists in this form, since one array needs one JNI call.

/// Packs a list.
pub fn pack<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in texts {
        let text = text.as_ref();
        bytes.extend_from_slice(&(text.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// Unpacks a list; a truncated last string is omitted.
pub fn unpack(mut bytes: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_ne_bytes(*length) as usize;
        let Some((text, rest)) = rest.split_at_checked(length) else { break };
        texts.push(String::from_utf8_lossy(text).into_owned());
        bytes = rest;
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_list_unpacks_to_the_same_list() {
        let texts = ["", "route", "/käse\0\u{1f9c0}"];
        assert_eq!(unpack(&pack(texts)), texts);
        assert_eq!(unpack(&pack(texts)[..9]), ["", "r"][..1], "truncated");
    }
}
