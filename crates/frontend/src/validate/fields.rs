//! A JSON request object as named raw texts: one pass checks the syntax, then each field is read by
//! its own bounded reader, so that every complaint can name the field and nothing is built before
//! its size is known.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::api_error::ApiError;
use crate::limits::MAX_FIELDS;

/// Bounds of a floating-point field.
#[derive(Debug, Clone, Copy)]
pub struct Float {
    /// Field name.
    pub name: &'static str,
    /// Smallest value, allowed unless `min_open`.
    pub min: f64,
    /// Largest value, allowed.
    pub max: f64,
    /// The smallest value itself is refused.
    pub min_open: bool,
}

/// Bounds of an integer field, both allowed.
#[derive(Debug, Clone, Copy)]
pub struct Int {
    /// Field name.
    pub name: &'static str,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
}

/// Bounds of a string field.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// Field name.
    pub name: &'static str,
    /// Shortest value in characters.
    pub min_chars: usize,
    /// Longest value in characters.
    pub max_chars: usize,
}

/// One request object. Fields are taken by name; a field that was never asked for is unknown.
pub struct Fields<'a> {
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    name: Cow<'a, str>,
    raw: &'a RawValue,
    known: Cell<bool>,
}

impl<'a> Fields<'a> {
    /// Checks the syntax of `body` and splits it into fields.
    ///
    /// # Errors
    /// 400 with line and column if it is not a JSON object, repeats a field (what checks a request
    /// on its way may have read the other one), or has more than [`MAX_FIELDS`] fields.
    pub fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        let malformed = |e: serde_json::Error| {
            let mut error = ApiError::invalid("body", format!("the body is not valid JSON: {e}"));
            error.code = "invalid_json";
            error.param = None;
            error
        };
        let mut json = serde_json::Deserializer::from_slice(body);
        let entries = json.deserialize_map(EntriesVisitor).map_err(malformed)?;
        json.end().map_err(malformed)?;
        Ok(Self { entries })
    }

    /// JSON text of a field; a field that is `null` counts as absent.
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        let entry = self.entries.iter().find(|e| e.name == name)?;
        entry.known.set(true);
        let text = entry.raw.get();
        (text != "null").then_some(text)
    }

    /// Names that no reader asked for.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|e| !e.known.get()).map(|e| e.name.as_ref())
    }

    /// A floating-point field within its bounds.
    pub fn float(&self, bound: &Float) -> Result<Option<f64>, ApiError> {
        self.raw(bound.name).map(|raw| read_float(bound, raw)).transpose()
    }

    /// An integer field within its bounds; `5.0` is an integer, as in vLLM.
    pub fn int(&self, bound: &Int) -> Result<Option<i64>, ApiError> {
        self.raw(bound.name).map(|raw| read_int(bound, raw)).transpose()
    }

    /// `true` or `false`, or the default when absent.
    pub fn boolean(&self, name: &'static str, default: bool) -> Result<bool, ApiError> {
        match self.raw(name) {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(ApiError::invalid(
                name,
                format!("`{name}` must be a boolean, got {}", cut(other)),
            )),
        }
    }

    /// A string field within its bounds.
    pub fn text(&self, bound: &Text) -> Result<Option<String>, ApiError> {
        let Some(raw) = self.raw(bound.name) else { return Ok(None) };
        let value: String = read_json(bound.name, raw)?;
        let chars = value.chars().count();
        if chars < bound.min_chars || chars > bound.max_chars {
            return Err(ApiError::invalid(
                bound.name,
                format!(
                    "`{}` must have {} to {} characters, got {chars}",
                    bound.name, bound.min_chars, bound.max_chars
                ),
            ));
        }
        Ok(Some(value))
    }

    /// An array of at most `max` items.
    pub fn list<T: Deserialize<'a>>(
        &self,
        name: &'static str,
        max: usize,
    ) -> Result<Option<Vec<T>>, ApiError> {
        self.raw(name).map(|raw| read_list(name, raw, max)).transpose()
    }
}

/// A number in `raw` within `bound`.
pub fn read_float(bound: &Float, raw: &str) -> Result<f64, ApiError> {
    let Float { name, min, max, min_open } = *bound;
    let value = number(name, raw)?;
    let above = if min_open { value > min } else { value >= min };
    if above && value <= max {
        return Ok(value);
    }
    let range = if min_open {
        format!("greater than {min} and at most {max}")
    } else {
        format!("between {min} and {max}")
    };
    Err(ApiError::invalid(name, format!("`{name}` must be {range}, got {}", cut(raw))))
}

/// An integer in `raw` within `bound`.
pub fn read_int(bound: &Int, raw: &str) -> Result<i64, ApiError> {
    let Int { name, min, max } = *bound;
    let value = match raw.parse::<i64>() {
        Ok(value) => Some(value),
        Err(_) => {
            let value = number(name, raw)?;
            if value.fract() != 0.0 {
                return Err(ApiError::invalid(
                    name,
                    format!("`{name}` must be an integer, got {}", cut(raw)),
                ));
            }
            // Beyond 2^53 a float does not name one integer; beyond i64 it is out of any bound.
            (value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
        }
    };
    match value {
        Some(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(ApiError::invalid(
            name,
            format!("`{name}` must be between {min} and {max}, got {}", cut(raw)),
        )),
    }
}

/// Any JSON value of type `T`.
pub fn read_json<'a, T: Deserialize<'a>>(name: &str, raw: &'a str) -> Result<T, ApiError> {
    serde_json::from_str(raw).map_err(|e| ApiError::invalid(name, format!("`{name}`: {e}")))
}

/// An array of at most `max` values of type `T`; stops reading at the first one too many.
pub fn read_list<'a, T: Deserialize<'a>>(
    name: &str,
    raw: &'a str,
    max: usize,
) -> Result<Vec<T>, ApiError> {
    let mut json = serde_json::Deserializer::from_str(raw);
    Bounded::<T>::new(max)
        .deserialize(&mut json)
        .map_err(|e| ApiError::invalid(name, format!("`{name}`: {e}")))
}

/// Reads a sequence and fails once it is longer than its bound.
pub struct Bounded<T> {
    max: usize,
    item: std::marker::PhantomData<T>,
}

impl<T> Bounded<T> {
    /// A reader of at most `max` items.
    pub fn new(max: usize) -> Self {
        Self { max, item: std::marker::PhantomData }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Bounded<T> {
    type Value = Vec<T>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Vec<T>, D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
    type Value = Vec<T>;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "an array of at most {} items", self.max)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            if items.len() == self.max {
                return Err(de::Error::custom(format_args!("more than {} items", self.max)));
            }
            items.push(item);
        }
        Ok(items)
    }
}

fn number(name: &str, raw: &str) -> Result<f64, ApiError> {
    let numeric = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    match raw.parse::<f64>() {
        Ok(value) if numeric => Ok(value),
        _ => Err(ApiError::invalid(name, format!("`{name}` must be a number, got {}", cut(raw)))),
    }
}

/// At most 40 characters of a client's text, for error messages.
pub fn cut(raw: &str) -> String {
    match raw.char_indices().nth(40) {
        None => raw.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes)", &raw[..end], raw.len()),
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Vec<Entry<'de>>;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<Entry<'de>> = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            let raw: &'de RawValue = map.next_value()?;
            if entries.iter().any(|e| e.name == name) {
                let shown = cut(&name);
                return Err(de::Error::custom(format_args!("the field `{shown}` is repeated")));
            }
            if entries.len() == MAX_FIELDS {
                return Err(de::Error::custom(format_args!("more than {MAX_FIELDS} fields")));
            }
            entries.push(Entry { name, raw, known: Cell::new(false) });
        }
        Ok(entries)
    }
}

/// A key that borrows from the body when it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a field name")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(v.to_owned())))
            }
        }
        d.deserialize_str(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Float = Float { name: "t", min: 0.0, max: 2.0, min_open: false };
    const N: Int = Int { name: "n", min: 1, max: 8 };

    #[test]
    fn null_is_absent_and_a_repeated_field_is_refused() {
        let fields = Fields::parse(br#"{"n": 2, "t": null, "x": 1}"#).unwrap();
        assert_eq!(fields.int(&N).unwrap(), Some(2));
        assert_eq!(fields.float(&T).unwrap(), None);
        assert_eq!(fields.unknown().collect::<Vec<_>>(), ["x"]);
        for body in [r#"{"n": 1, "n": 2}"#, r#"{"n": 1, "t": 0, "\u006e": 1}"#] {
            let Err(error) = Fields::parse(body.as_bytes()) else { panic!("{body} was taken") };
            assert!(error.message.contains("the field `n` is repeated"), "{}", error.message);
        }
    }

    #[test]
    fn numbers_outside_their_bound_name_field_and_bound() {
        for (body, want) in [
            (r#"{"n": 0}"#, "`n` must be between 1 and 8, got 0"),
            (r#"{"n": 1e18}"#, "`n` must be between 1 and 8, got 1e18"),
            (r#"{"n": 1.5}"#, "`n` must be an integer, got 1.5"),
            (r#"{"n": "1"}"#, "`n` must be a number, got \"1\""),
            (r#"{"n": 99999999999999999999}"#, "must be between 1 and 8"),
        ] {
            let fields = Fields::parse(body.as_bytes()).unwrap();
            let error = fields.int(&N).unwrap_err();
            assert!(error.message.contains(want), "{body}: {}", error.message);
            assert_eq!(error.param.as_deref(), Some("n"));
        }
        let fields = Fields::parse(br#"{"t": 1e400, "n": 8.0}"#).unwrap();
        assert!(fields.float(&T).unwrap_err().message.contains("between 0 and 2"));
        assert_eq!(fields.int(&N).unwrap(), Some(8));
    }

    #[test]
    fn malformed_json_says_where() {
        for body in ["", "[]", "{\"a\":}", "{\"a\":1} x", "{\"a\":NaN}", "{\"a\":\"\u{1}"] {
            let Err(error) = Fields::parse(body.as_bytes()) else { panic!("{body} was taken") };
            assert_eq!(error.code, "invalid_json");
            assert!(error.message.contains("line 1 column"), "{}", error.message);
        }
        assert!(Fields::parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn more_fields_than_the_bound_are_refused() {
        let many = (0..MAX_FIELDS + 1).map(|i| format!("\"f{i}\":0")).collect::<Vec<_>>().join(",");
        let body = format!("{{{many}}}");
        assert!(Fields::parse(body.as_bytes()).is_err());
    }
}
