//! Members of the JSON objects that a structural tag is written in.

use serde_json::{Map, Value};

use crate::{Bound, GrammarError};

/// An object, and where it is. A member that is `null` counts as absent.
pub(super) struct Members<'a> {
    map: &'a Map<String, Value>,
    pub(super) at: String,
}

impl<'a> Members<'a> {
    pub(super) fn of(value: &'a Value, at: String) -> Result<Members<'a>, GrammarError> {
        match value {
            Value::Object(map) => Ok(Members { map, at }),
            _ => Err(GrammarError::invalid("must be an object", &at)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }
    pub(super) fn required(&self, name: &str) -> Result<&'a Value, GrammarError> {
        self.get(name)
            .ok_or_else(|| GrammarError::invalid(format!("`{name}` is missing"), &self.at))
    }
    /// Where a member is.
    pub(super) fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.at)
    }
    /// A member is not what it must be.
    pub(super) fn must_be(&self, name: &str, what: &str) -> GrammarError {
        GrammarError::invalid(format!("`{name}` must be {what}"), &self.at)
    }

    /// Refuses members beside these.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), GrammarError> {
        let is_unknown = |name: &&String| {
            !known.contains(&name.as_str()) && name.as_str() != "type" && self.get(name).is_some()
        };
        match self.map.keys().find(is_unknown) {
            None => Ok(()),
            Some(name) => Err(GrammarError::unsupported(format!("`{}`", shown(name)), &self.at)),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<&'a str, GrammarError> {
        self.required(name)?.as_str().ok_or_else(|| self.must_be(name, "a string"))
    }
    /// A boolean, or what it is where it is absent.
    pub(super) fn flag(&self, name: &str, absent: bool) -> Result<bool, GrammarError> {
        match self.get(name) {
            None => Ok(absent),
            Some(value) => value.as_bool().ok_or_else(|| self.must_be(name, "a boolean")),
        }
    }
    /// A list that is not empty.
    pub(super) fn list(&self, name: &str) -> Result<&'a [Value], GrammarError> {
        match self.required(name)? {
            Value::Array(items) if !items.is_empty() => Ok(items),
            _ => Err(self.must_be(name, "a list, not empty")),
        }
    }
    /// A list of texts that are not empty; none where it is absent. Each comes once.
    pub(super) fn texts(&self, name: &'static str) -> Result<Vec<&'a str>, GrammarError> {
        let wrong = || self.must_be(name, "a list of strings, none of them empty");
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(wrong)?;
        bounded(list.len(), name)?;
        let text = |item: &'a Value| item.as_str().filter(|text| !text.is_empty());
        let mut texts = Vec::new();
        for item in list {
            let text = text(item).ok_or_else(wrong)?;
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        Ok(texts)
    }
}

/// Tags of one structural tag, and texts of one list.
pub(super) const MAX_LISTED: usize = 512;

/// Bounds what there may be at most [`MAX_LISTED`] of.
pub(super) fn bounded(count: usize, of: &'static str) -> Result<(), GrammarError> {
    if count <= MAX_LISTED {
        return Ok(());
    }
    let what = match of {
        "triggers" => "the number of its `triggers`",
        "excludes" => "the number of its `excludes`",
        "end" => "the number of texts in its `end`",
        _ => "the number of its tags",
    };
    Err(GrammarError::TooLarge { bound: Bound::Source(what), limit: MAX_LISTED as u64 })
}

/// The beginning of a client's text, for complaints.
pub(super) fn shown(text: &str) -> String {
    const MOST_CHARS: usize = 48;
    match text.char_indices().nth(MOST_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
