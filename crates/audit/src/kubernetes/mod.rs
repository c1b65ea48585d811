//! Kubernetes' objects: `kubectl get pods -A -o json`, lists of the API server, one object per
//! line, several concatenated documents.
//!
//! A list is never held: its items are read one by one, each at most [`MAX_OBJECT`] bytes.

mod metered;
mod object;
mod quantity;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::io::BufRead;
use std::rc::Rc;

use anyhow::{Result, bail};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::job::Row;
use crate::lines::{Line, Lines};
use metered::Metered;
use object::{Object, What};

/// Bytes of one object; the API server itself takes no more than a few million.
const MAX_OBJECT: usize = 16 << 20;
/// Bytes of a line where objects come one per line.
const MAX_LINE: usize = MAX_OBJECT;
/// Nodes whose GPU type is remembered.
const MAX_NODES: usize = 200_000;

/// What is known besides the pods.
pub struct Cluster {
    /// GPU type by name of node.
    models: HashMap<String, String>,
    /// Seconds since 1970 at which the dump was made: running pods held their GPUs until then.
    at: u64,
}

impl Cluster {
    /// Nothing known yet; `at` is in seconds since 1970.
    pub fn new(at: u64) -> Cluster {
        Cluster { models: HashMap::new(), at }
    }

    fn learn(&mut self, node: String, model: String) -> Result<()> {
        if self.models.len() >= MAX_NODES && !self.models.contains_key(&node) {
            bail!("more than {MAX_NODES} nodes");
        }
        self.models.insert(node, model);
        Ok(())
    }
}

/// Reads objects until the end of the input, learns GPU types from nodes, and hands everything else
/// to `sink`. A document that breaks off is a rejected row: nothing after it can be read.
///
/// # Errors
/// The input cannot be read.
pub fn read(
    mut input: impl BufRead,
    cluster: &mut Cluster,
    sink: &mut impl FnMut(Row),
) -> Result<()> {
    let mut each = |json: &str| match Object::classify(json, &cluster.models, cluster.at) {
        What::Row(row) => {
            sink(row);
            Ok(())
        }
        What::Node { name, model } => cluster.learn(name, model),
    };
    if is_line_by_line(&mut input)? {
        return read_lines(input, &mut each);
    }
    let used = Rc::new(Cell::new(0));
    while skip_blanks(&mut input)? {
        used.set(0);
        let mut reader = serde_json::Deserializer::from_reader(Metered {
            input: &mut input,
            used: used.clone(),
            max: MAX_OBJECT,
        });
        let document = Document { each: &mut each, used: Some(&used) };
        if let Err(error) = document.deserialize(&mut reader) {
            return broken(&error, &mut each);
        }
    }
    Ok(())
}

type Each<'a> = dyn FnMut(&str) -> Result<()> + 'a;

/// The classifier rejects an object that it cannot classify, and an empty text, which is passed in
/// place of what is not even JSON.
const NOT_JSON: &str = "";

fn broken(error: &serde_json::Error, each: &mut Each) -> Result<()> {
    match error.classify() {
        // An object that is too long is reported as an input error by its meter.
        serde_json::error::Category::Io if !error.to_string().contains(metered::TOO_LONG) => {
            bail!("cannot read: {error}")
        }
        serde_json::error::Category::Data if error.to_string().contains(STOPPED) => {
            bail!("{error}")
        }
        _ => each(NOT_JSON),
    }
}

fn read_lines(input: impl BufRead, each: &mut Each) -> Result<()> {
    let mut lines = Lines::new(input, MAX_LINE);
    while let Some(line) = lines.next()? {
        let text = match line {
            Line::TooLong => NOT_JSON,
            Line::Whole(text) if text.trim().is_empty() => continue,
            Line::Whole(text) => text,
        };
        let mut reader = serde_json::Deserializer::from_str(text);
        let document = Document { each, used: None };
        let read = document.deserialize(&mut reader).and_then(|()| reader.end());
        if let Err(error) = read {
            broken(&error, each)?;
        }
    }
    Ok(())
}

/// Whether the first line is a complete JSON value, and so (as far as we know) is every line.
fn is_line_by_line(input: &mut impl BufRead) -> Result<bool> {
    let start = input.fill_buf()?;
    let Some(end) = start.iter().position(|b| *b == b'\n') else { return Ok(false) };
    Ok(serde_json::from_slice::<IgnoredAny>(&start[..end]).is_ok())
}

/// Whether anything but blanks is left.
fn skip_blanks(input: &mut impl BufRead) -> Result<bool> {
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let blanks = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
        let only_blanks = blanks == bytes.len();
        input.consume(blanks);
        if !only_blanks {
            return Ok(true);
        }
    }
}

/// Marks errors of the callback among those of the parser.
const STOPPED: &str = "reading stopped: ";

/// A list of objects, an array of them, or one.
struct Document<'a, 'b> {
    each: &'a mut Each<'b>,
    /// The meter, to be set back for each item.
    used: Option<&'a Cell<usize>>,
}

impl Document<'_, '_> {
    fn hand<E: Error>(&mut self, json: &str) -> Result<(), E> {
        (self.each)(json).map_err(|error| E::custom(format!("{STOPPED}{error:#}")))
    }

    fn items<'de, A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        loop {
            if let Some(used) = self.used {
                used.set(0);
            }
            match items.next_element::<Box<RawValue>>()? {
                Some(item) => self.hand(item.get())?,
                None => return Ok(()),
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object or a list of objects of Kubernetes")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, items: A) -> Result<(), A::Error> {
        self.items(items)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut parts: Vec<(String, Box<RawValue>)> = Vec::new();
        let mut is_list = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "items" => {
                    is_list = true;
                    map.next_value_seed(Items(&mut self))?;
                }
                "kind" | "metadata" | "spec" | "status" => {
                    parts.retain(|(name, _)| *name != key);
                    parts.push((key, map.next_value()?));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if is_list {
            return Ok(());
        }
        let fields: Vec<String> =
            parts.iter().map(|(key, value)| format!("\"{key}\":{}", value.get())).collect();
        self.hand(&format!("{{{}}}", fields.join(",")))
    }
}

/// The `items` of a list; may be null.
struct Items<'a, 'b, 'c>(&'a mut Document<'b, 'c>);

impl<'de> DeserializeSeed<'de> for Items<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        self.0.items(items)
    }
}

#[cfg(test)]
mod tests;
