//! Lists of text, such as the prefixes of `own_code`.

use super::shape::Shape;
use super::value::{ConfigType, ConfigValue};
use super::yaml::list_of;

/// As text, `a, b` or a list in YAML.
impl ConfigType for Vec<String> {
    const SHAPE: Shape = Shape::TextList;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        let texts = match value {
            ConfigValue::Text(text) if !text.trim_start().starts_with('[') => {
                text.split(',').map(str::to_owned).collect()
            }
            _ => list_of(value)?.iter().map(ConfigValue::scalar_text).collect::<Option<Vec<_>>>()?,
        };
        let trimmed = texts.iter().map(|text| text.trim().to_owned());
        Some(trimmed.filter(|text| !text.is_empty()).collect())
    }

    fn to_text(&self) -> String {
        self.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_text_is_a_list_or_text_with_commas() {
        let list = |value: ConfigValue| Vec::<String>::from_value(&value);
        let expected = Some(vec!["/srv/shop".to_owned(), "com.example.".to_owned()]);
        assert_eq!(list("/srv/shop, com.example.,".into()), expected);
        assert_eq!(list("[/srv/shop, 'com.example.']".into()), expected);
        assert_eq!(list(ConfigValue::List(vec!["/srv/shop".into(), " com.example. ".into(), "".into()])), expected);
        assert_eq!(list(ConfigValue::List(vec![ConfigValue::List(Vec::new())])), None);
        assert_eq!((list("[a".into()), list(ConfigValue::Map(Vec::new()))), (None, None));
    }
}
