//! Streaming JSON writer. Called by `--json` and the HTTP API.

use std::fmt::Write as _;

/// JSON text under construction; the writer inserts commas.
#[derive(Debug, Default)]
pub(crate) struct Json(String);

impl Json {
    pub(crate) fn new() -> Self {
        Json::default()
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn comma(&mut self) {
        if !matches!(self.0.as_bytes().last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(',');
        }
    }

    pub(crate) fn object(&mut self, fill: impl FnOnce(&mut Json)) -> &mut Self {
        self.comma();
        self.0.push('{');
        fill(self);
        self.0.push('}');
        self
    }

    pub(crate) fn array(&mut self, fill: impl FnOnce(&mut Json)) -> &mut Self {
        self.comma();
        self.0.push('[');
        fill(self);
        self.0.push(']');
        self
    }

    pub(crate) fn key(&mut self, name: &str) -> &mut Self {
        self.string(name);
        self.0.push(':');
        self
    }

    pub(crate) fn string(&mut self, text: &str) -> &mut Self {
        self.comma();
        self.0.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.0.push_str("\\\""),
                '\\' => self.0.push_str("\\\\"),
                '\n' => self.0.push_str("\\n"),
                '\r' => self.0.push_str("\\r"),
                '\t' => self.0.push_str("\\t"),
                // U+2028 and U+2029 end a line in a script; `<` could end the enclosing HTML element.
                '\u{0}'..='\u{1f}' | '\u{2028}' | '\u{2029}' | '<' => {
                    let _ = write!(self.0, "\\u{:04x}", u32::from(letter));
                }
                _ => self.0.push(letter),
            }
        }
        self.0.push('"');
        self
    }

    pub(crate) fn number(&mut self, value: impl Into<i128>) -> &mut Self {
        self.comma();
        let _ = write!(self.0, "{}", value.into());
        self
    }

    /// A floating-point number with all its digits; infinities and NaN by their names in protobuf's JSON mapping.
    pub(crate) fn double(&mut self, value: f64) -> &mut Self {
        match value {
            f64::INFINITY => self.string("Infinity"),
            f64::NEG_INFINITY => self.string("-Infinity"),
            _ if value.is_nan() => self.string("NaN"),
            _ => {
                self.comma();
                let _ = write!(self.0, "{value:?}");
                self
            }
        }
    }

    /// Text that is JSON already.
    pub(crate) fn raw(&mut self, json: &str) -> &mut Self {
        self.comma();
        self.0.push_str(if json.is_empty() { "null" } else { json });
        self
    }

    pub(crate) fn boolean(&mut self, value: bool) -> &mut Self {
        self.comma();
        self.0.push_str(if value { "true" } else { "false" });
        self
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.comma();
        self.0.push_str("null");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_escapes_are_inserted() {
        let mut json = Json::new();
        json.object(|json| {
            json.key("a\"b").string("line\n</script>\u{1}");
            json.key("list").array(|json| {
                json.number(1).number(-2i64).double(0.5).double(f64::NAN).boolean(true).null();
                json.object(|_| ()).array(|_| ());
            });
        });
        assert_eq!(json.finish(), r#"{"a\"b":"line\n\u003c/script>\u0001","list":[1,-2,0.5,"NaN",true,null,{},[]]}"#);
    }
}
