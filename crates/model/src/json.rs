//! Typed, bounded access to the fields of a JSON object. Every refusal names file, field, value and
//! bound. `null` reads as absent, as the Hugging Face libraries do.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::{ModelError, Result};

/// Longest value that an error message quotes, in characters.
const MAX_QUOTED_CHARS: usize = 60;

/// Parses `text` as one JSON object.
pub(crate) fn parse_object(file: &str, text: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(ModelError::file(file, "is not a JSON object")),
        Err(error) => Err(ModelError::file(file, format!("is not valid JSON: {error}"))),
    }
}

/// Shows a value in an error message, shortened.
pub(crate) fn quoted(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The fields of one object of one file.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    file: &'a str,
    /// Dotted path of the object itself; empty for the root.
    path: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(file: &'a str, path: &'a str, map: &'a Map<String, Value>) -> Self {
        Self { file, path, map }
    }

    /// Another object of the same file.
    pub(crate) fn nested<'b>(&self, path: &'b str, map: &'b Map<String, Value>) -> Fields<'b>
    where
        'a: 'b,
    {
        Fields { file: self.file, path, map }
    }

    /// The value of a field, `None` if it is absent or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// True if the field is there, even as null (the two mean different defaults in some families).
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.map.keys().map(String::as_str)
    }

    /// Dotted path of one field of this object.
    pub(crate) fn path_of(&self, name: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{name}", self.path)
    }

    /// An error about one field of this object.
    pub(crate) fn error(&self, name: &str, problem: impl Into<String>) -> ModelError {
        ModelError::field(self.file, self.path_of(name), problem)
    }

    fn wrong(&self, name: &str, value: &Value, must: impl Display) -> ModelError {
        self.error(name, format!("is {}, must be {must}", quoted(value)))
    }

    /// Turns an absent field into an error.
    pub(crate) fn require<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.error(name, "is missing"))
    }

    pub(crate) fn u32(&self, name: &str, bound: RangeInclusive<u32>) -> Result<Option<u32>> {
        self.get(name).map(|value| self.u32_value(name, value, bound)).transpose()
    }

    fn u32_value(&self, name: &str, value: &Value, bound: RangeInclusive<u32>) -> Result<u32> {
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        number.filter(|n| bound.contains(n)).ok_or_else(|| {
            self.wrong(
                name,
                value,
                format_args!("an integer in {}..={}", bound.start(), bound.end()),
            )
        })
    }

    pub(crate) fn f64(&self, name: &str, bound: RangeInclusive<f64>) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().filter(|n| n.is_finite() && bound.contains(n));
        number.map(Some).ok_or_else(|| {
            self.wrong(name, value, format_args!("a number in {}..={}", bound.start(), bound.end()))
        })
    }

    pub(crate) fn bool(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, value, "true or false"))
    }

    pub(crate) fn str(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(name, value, "a string"))
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| self.wrong(name, value, "an object"))
    }

    /// A list of at most `max_len` strings.
    pub(crate) fn strings(&self, name: &str, max_len: usize) -> Result<Option<Vec<&'a str>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let list = value.as_array().filter(|list| list.len() <= max_len);
        let strings = list.and_then(|list| list.iter().map(Value::as_str).collect());
        strings.map(Some).ok_or_else(|| {
            self.wrong(name, value, format_args!("a list of at most {max_len} strings"))
        })
    }

    /// A list of at most `max_len` numbers.
    pub(crate) fn numbers(
        &self,
        name: &str,
        bound: RangeInclusive<f64>,
        max_len: usize,
    ) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let list = value.as_array().filter(|list| list.len() <= max_len);
        let number = |value: &Value| value.as_f64().filter(|n| bound.contains(n));
        let numbers = list.and_then(|list| list.iter().map(number).collect());
        numbers.map(Some).ok_or_else(|| {
            let (low, high) = (bound.start(), bound.end());
            let must = format_args!("a list of at most {max_len} numbers in {low}..={high}");
            self.wrong(name, value, must)
        })
    }

    /// Token ids written as one integer or as a list of at most `max_len` of them.
    pub(crate) fn token_ids(
        &self,
        name: &str,
        bound: RangeInclusive<u32>,
        max_len: usize,
    ) -> Result<Option<Vec<u32>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let Some(list) = value.as_array() else {
            return Ok(Some(vec![self.u32_value(name, value, bound)?]));
        };
        if list.len() > max_len {
            let problem = format!("has {} entries, must be at most {max_len}", list.len());
            return Err(self.error(name, problem));
        }
        let ids = list.iter().map(|id| self.u32_value(name, id, bound.clone()));
        ids.collect::<Result<Vec<u32>>>().map(Some)
    }
}
