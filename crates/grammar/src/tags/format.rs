//! What a structural tag says.

use std::borrow::Cow;

use serde_json::Value;

use crate::cfg::Parsed;

/// Texts of one form. `at` is where a request has written it, for complaints.
#[derive(Debug)]
pub(super) enum Format<'a> {
    Text(&'a str),
    /// JSON that a schema accepts.
    Schema {
        schema: Cow<'a, Value>,
        at: String,
    },
    Regex {
        pattern: &'a str,
        at: String,
    },
    Grammar {
        grammar: Parsed<'a>,
        at: String,
    },
    Free(Free<'a>),
    Sequence(Vec<Format<'a>>),
    Or(Vec<Format<'a>>),
    /// `min` to `max` of them, one behind the other.
    Repeat {
        part: Box<Format<'a>>,
        min: u32,
        max: Option<u32>,
    },
    Tag(Tag<'a>),
    Triggered(Triggered<'a>),
    Separated(Separated<'a>),
}

/// Any text without these. Within a tag it goes on until the tag's end comes.
#[derive(Debug)]
pub(super) struct Free<'a> {
    pub(super) excludes: Vec<&'a str>,
    pub(super) at: String,
}

#[derive(Debug)]
pub(super) struct Tag<'a> {
    pub(super) begin: &'a str,
    pub(super) content: Box<Format<'a>>,
    /// One of them comes behind the content; nothing if there are none.
    pub(super) ends: Vec<&'a str>,
}

/// Free text in which a trigger is the beginning of a tag.
#[derive(Debug)]
pub(super) struct Triggered<'a> {
    pub(super) triggers: Vec<&'a str>,
    pub(super) tags: Vec<Tag<'a>>,
    /// A tag comes first.
    pub(super) at_least_one: bool,
    /// Nothing comes behind the first tag.
    pub(super) stop_after_first: bool,
    pub(super) free: Free<'a>,
}

/// Tags with a text between them.
#[derive(Debug)]
pub(super) struct Separated<'a> {
    pub(super) tags: Vec<Tag<'a>>,
    pub(super) separator: &'a str,
    pub(super) at_least_one: bool,
    pub(super) stop_after_first: bool,
}

impl Format<'_> {
    /// Its last part may be free text, which only what comes behind it can end.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Format::Free(_) => true,
            Format::Triggered(tags) => !(tags.at_least_one && tags.stop_after_first),
            Format::Sequence(parts) => parts.last().is_some_and(Format::is_open),
            Format::Or(parts) => parts.iter().any(Format::is_open),
            Format::Repeat { part, .. } => part.is_open(),
            _ => false,
        }
    }
}
