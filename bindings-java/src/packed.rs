//! Lists of texts as one array of bytes: each its length in four bytes of the machine's order, then UTF-8. What Java and
//! the door pass each other, since one array is one call of the JNI.

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

/// Reads a list; what is cut short is left out.
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
    fn a_list_is_read_back_as_it_was_packed() {
        let texts = ["", "route", "/käse\0\u{1f9c0}"];
        assert_eq!(unpack(&pack(texts)), texts);
        assert_eq!(unpack(&pack(texts)[..9]), ["", "r"][..1], "cut short");
    }
}
