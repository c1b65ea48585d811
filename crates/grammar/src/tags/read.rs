//! Reads structural tags, in both shapes: a `format`, or `structures` and `triggers`.

use std::borrow::Cow;

use serde_json::Value;

use super::format::{Format, Free, Separated, Tag, Triggered};
use super::members::{Members, bounded, shown};
use crate::cfg::Parsed;
use crate::{Bound, GrammarError};

/// Formats within formats.
const MAX_DEPTH: usize = 32;

/// Reads a whole document.
pub(super) fn read(document: &Value) -> Result<Format<'_>, GrammarError> {
    let members = Members::of(document, "#".into())?;
    if members.get("type").is_some_and(|kind| kind != "structural_tag") {
        return Err(members.must_be("type", "structural_tag"));
    }
    let mut reader = Reader { depth: 0, tags: 0 };
    if members.get("structures").is_some() {
        members.only(&["structures", "triggers"])?;
        return reader.older(&members);
    }
    members.only(&["format"])?;
    reader.format(members.required("format")?, members.place("format"))
}

struct Reader {
    depth: usize,
    /// Tags so far.
    tags: usize,
}

impl Reader {
    /// `structures` are tags whose contents are JSON.
    fn older<'a>(&mut self, members: &Members<'a>) -> Result<Format<'a>, GrammarError> {
        let mut tags = Vec::new();
        for (i, value) in members.list("structures")?.iter().enumerate() {
            let tag = Members::of(value, format!("#/structures/{i}"))?;
            tag.only(&["begin", "schema", "end"])?;
            let content = schema(&tag, "schema")?;
            tags.push(self.tag_around(&tag, content)?);
        }
        triggered(members, tags)
    }

    fn format<'a>(&mut self, value: &'a Value, at: String) -> Result<Format<'a>, GrammarError> {
        if self.depth == MAX_DEPTH {
            let limit = MAX_DEPTH as u64;
            return Err(GrammarError::TooLarge {
                bound: Bound::Source("the depth of its formats"),
                limit,
            });
        }
        self.depth += 1;
        let members = Members::of(value, at)?;
        let format = self.of_type(members.text("type")?, members)?;
        self.depth -= 1;
        Ok(format)
    }

    fn of_type<'a>(
        &mut self,
        kind: &str,
        members: Members<'a>,
    ) -> Result<Format<'a>, GrammarError> {
        match kind {
            "const_string" => {
                members.only(&["value"])?;
                members.text("value").map(Format::Text)
            }
            "json_schema" => json_schema(&members),
            "regex" => {
                members.only(&["pattern"])?;
                Ok(Format::Regex {
                    pattern: members.text("pattern")?,
                    at: members.place("pattern"),
                })
            }
            "grammar" => grammar(&members),
            "any_text" => {
                members.only(&["excludes"])?;
                Ok(Format::Free(Free { excludes: members.texts("excludes")?, at: members.at }))
            }
            "sequence" => self.sequence(&members),
            "or" => {
                members.only(&["elements"])?;
                self.formats(&members, "elements").map(Format::Or)
            }
            "optional" | "plus" | "star" | "repeat" => self.repeat(kind, &members),
            "tag" => self.tag(&members).map(Format::Tag),
            "triggered_tags" => {
                members.only(&[
                    "triggers",
                    "tags",
                    "at_least_one",
                    "stop_after_first",
                    "excludes",
                ])?;
                triggered(&members, self.tags(&members)?)
            }
            "tags_with_separator" => self.separated(&members),
            "dispatch" => self.dispatch(&members),
            other => {
                let name = format!("the format `{}`", shown(other));
                Err(GrammarError::unsupported(name, &members.at))
            }
        }
    }

    fn formats<'a>(
        &mut self,
        members: &Members<'a>,
        name: &str,
    ) -> Result<Vec<Format<'a>>, GrammarError> {
        let place = |i| format!("{}/{name}/{i}", members.at);
        let list = members.list(name)?;
        list.iter().enumerate().map(|(i, value)| self.format(value, place(i))).collect()
    }

    /// What may be free text at its end comes last, where the answer or a tag ends it.
    fn sequence<'a>(&mut self, members: &Members<'a>) -> Result<Format<'a>, GrammarError> {
        members.only(&["elements"])?;
        let parts = self.formats(members, "elements")?;
        let is_endless = |part: &Format<'_>| match part {
            // It says itself what comes behind it.
            Format::Free(free) => free.excludes.is_empty(),
            part => part.is_open(),
        };
        let before_last = &parts[..parts.len() - 1];
        match before_last.iter().position(is_endless) {
            None => Ok(Format::Sequence(parts)),
            Some(i) => {
                let message = "only the last element of a `sequence` may end with free text";
                Err(GrammarError::invalid(message, &format!("{}/elements/{i}", members.at)))
            }
        }
    }

    fn repeat<'a>(
        &mut self,
        kind: &str,
        members: &Members<'a>,
    ) -> Result<Format<'a>, GrammarError> {
        let (min, max) = match kind {
            "repeat" => {
                members.only(&["content", "min", "max"])?;
                bounds(members)?
            }
            _ => {
                members.only(&["content"])?;
                (u32::from(kind == "plus"), None)
            }
        };
        let part = self.format(members.required("content")?, members.place("content"))?;
        if kind == "optional" {
            return Ok(Format::Or(vec![Format::Text(""), part]));
        }
        if part.is_open() {
            let message = "what is repeated must not end with free text";
            return Err(GrammarError::invalid(message, &members.place("content")));
        }
        Ok(Format::Repeat { part: Box::new(part), min, max })
    }

    fn tags<'a>(&mut self, members: &Members<'a>) -> Result<Vec<Tag<'a>>, GrammarError> {
        let tag = |(i, value)| {
            let tag = Members::of(value, format!("{}/tags/{i}", members.at))?;
            if tag.get("type").is_some_and(|kind| kind != "tag") {
                return Err(tag.must_be("type", "tag"));
            }
            self.tag(&tag)
        };
        members.list("tags")?.iter().enumerate().map(tag).collect()
    }

    fn tag<'a>(&mut self, members: &Members<'a>) -> Result<Tag<'a>, GrammarError> {
        members.only(&["begin", "content", "end"])?;
        let content = self.format(members.required("content")?, members.place("content"))?;
        self.tag_around(members, content)
    }

    fn tag_around<'a>(
        &mut self,
        members: &Members<'a>,
        content: Format<'a>,
    ) -> Result<Tag<'a>, GrammarError> {
        self.count_tag()?;
        let ends = match members.required("end")? {
            Value::Array(list) if list.iter().any(|end| end == "") => vec![""],
            Value::Array(list) if !list.is_empty() => members.texts("end")?,
            _ => vec![members.text("end")?],
        };
        if content.is_open() && ends.contains(&"") {
            let message = "`end` must not be empty behind free text";
            return Err(GrammarError::invalid(message, &members.at));
        }
        Ok(Tag { begin: members.text("begin")?, content: Box::new(content), ends })
    }

    fn count_tag(&mut self) -> Result<(), GrammarError> {
        self.tags += 1;
        bounded(self.tags, "tags")
    }

    /// Pairs of a text and a format that follows it, in free text: tags without ends.
    fn dispatch<'a>(&mut self, members: &Members<'a>) -> Result<Format<'a>, GrammarError> {
        members.only(&["rules", "loop", "excludes"])?;
        let mut tags: Vec<Tag<'a>> = Vec::new();
        for (i, rule) in members.list("rules")?.iter().enumerate() {
            self.count_tag()?;
            let (begin, content) = match rule.as_array().map(Vec::as_slice) {
                Some([Value::String(text), content]) if !text.is_empty() => (text, content),
                _ => {
                    return Err(
                        members.must_be("rules", "pairs of a text, not empty, and a format")
                    );
                }
            };
            let place = format!("{}/rules/{i}/1", members.at);
            let content = self.format(content, place.clone())?;
            if content.is_open() {
                let message = "what follows a text of `rules` must not end with free text";
                return Err(GrammarError::invalid(message, &place));
            }
            tags.push(Tag { begin, content: Box::new(content), ends: Vec::new() });
        }
        let mut triggers: Vec<&str> = tags.iter().map(|tag| tag.begin).collect();
        triggers.sort_unstable();
        triggers.dedup();
        Ok(Format::Triggered(Triggered {
            triggers,
            tags,
            at_least_one: false,
            stop_after_first: !members.flag("loop", true)?,
            free: Free { excludes: members.texts("excludes")?, at: members.at.clone() },
        }))
    }

    fn separated<'a>(&mut self, members: &Members<'a>) -> Result<Format<'a>, GrammarError> {
        members.only(&["tags", "separator", "at_least_one", "stop_after_first"])?;
        Ok(Format::Separated(Separated {
            tags: self.tags(members)?,
            separator: members.text("separator")?,
            at_least_one: members.flag("at_least_one", false)?,
            stop_after_first: members.flag("stop_after_first", false)?,
        }))
    }
}

fn triggered<'a>(members: &Members<'a>, tags: Vec<Tag<'a>>) -> Result<Format<'a>, GrammarError> {
    let triggers = members.texts("triggers")?;
    if triggers.is_empty() {
        return Err(members.must_be("triggers", "a list, not empty"));
    }
    let begins = |tag: &Tag<'_>| triggers.iter().any(|trigger| tag.begin.starts_with(trigger));
    if let Some(tag) = tags.iter().find(|tag| !begins(tag)) {
        let message =
            format!("`begin` must begin with one of `triggers`, got `{}`", shown(tag.begin));
        return Err(GrammarError::invalid(message, &members.at));
    }
    Ok(Format::Triggered(Triggered {
        triggers,
        tags,
        at_least_one: members.flag("at_least_one", false)?,
        stop_after_first: members.flag("stop_after_first", false)?,
        free: Free { excludes: members.texts("excludes")?, at: members.at.clone() },
    }))
}

fn json_schema<'a>(members: &Members<'a>) -> Result<Format<'a>, GrammarError> {
    members.only(&["json_schema", "style", "any_order"])?;
    // Members in the schema's order are in an order.
    members.flag("any_order", false)?;
    match members.get("style") {
        Some(style) if style != "json" => {
            Err(GrammarError::unsupported("`style` but json", &members.at))
        }
        _ => schema(members, "json_schema"),
    }
}

/// A JSON Schema, or a string that holds one.
fn schema<'a>(members: &Members<'a>, name: &str) -> Result<Format<'a>, GrammarError> {
    let schema = match members.required(name)? {
        Value::String(text) => Cow::Owned(serde_json::from_str(text).map_err(|e| {
            GrammarError::invalid(format!("`{name}` is not JSON: {e}"), &members.at)
        })?),
        schema => Cow::Borrowed(schema),
    };
    Ok(Format::Schema { schema, at: members.place(name) })
}

fn grammar<'a>(members: &Members<'a>) -> Result<Format<'a>, GrammarError> {
    members.only(&["grammar"])?;
    let at = members.place("grammar");
    let grammar = Parsed::of(members.text("grammar")?).map_err(|error| error.within(&at))?;
    Ok(Format::Grammar { grammar, at })
}

/// `min` and `max` of a `repeat`; −1 is no bound.
fn bounds(members: &Members<'_>) -> Result<(u32, Option<u32>), GrammarError> {
    let wrong = |name| members.must_be(name, "a whole number, not below 0");
    let number = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
    let min = number(members.required("min")?).ok_or_else(|| wrong("min"))?;
    let max = match members.required("max")? {
        none if none.as_i64() == Some(-1) => None,
        max => Some(number(max).ok_or_else(|| wrong("max"))?),
    };
    if max.is_some_and(|max| max < min) {
        return Err(members.must_be("max", "`min` at least"));
    }
    Ok((min, max))
}
