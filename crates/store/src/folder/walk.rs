//! Through a namespace's folder, holding nothing but the path to where it is.

use std::fs::{self, Metadata};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::{TEMPORARY, is_absent};
use crate::Key;

/// Folders above a value: model, salt, first digits of the name.
pub(super) const DEPTH: usize = 3;

/// What is found.
pub(super) enum Item {
    Value {
        key: Key,
        path: PathBuf,
        metadata: Metadata,
    },
    /// Being written, or left over by a writer that was killed.
    Temporary {
        path: PathBuf,
        metadata: Metadata,
    },
    /// Not ours.
    Foreign,
}

/// Tells every item, until told to stop. What goes away meanwhile is passed over.
pub(super) fn walk(
    root: &Path,
    tell: &mut impl FnMut(Item) -> io::Result<ControlFlow<()>>,
) -> io::Result<()> {
    descend(root, &mut Vec::new(), tell).map(|_| ())
}

fn descend(
    folder: &Path,
    above: &mut Vec<String>,
    tell: &mut impl FnMut(Item) -> io::Result<ControlFlow<()>>,
) -> io::Result<ControlFlow<()>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(ControlFlow::Continue(())),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Links are not followed.
        let is_folder = entry.file_type()?.is_dir();
        let flow = if is_folder && above.len() < DEPTH {
            above.push(name);
            let flow = descend(&entry.path(), above, tell)?;
            above.pop();
            flow
        } else {
            match entry.metadata() {
                Ok(metadata) => tell(item(above, &name, entry.path(), metadata))?,
                Err(error) if is_absent(&error) => ControlFlow::Continue(()),
                Err(error) => return Err(error),
            }
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn item(above: &[String], name: &str, path: PathBuf, metadata: Metadata) -> Item {
    let [model, salt, digits] = above else { return Item::Foreign };
    let stem = name.get(..64).unwrap_or_default();
    let key = Key::from_text(&format!("n/{model}/{salt}/{stem}"), "n", '/')
        .filter(|_| stem.starts_with(digits.as_str()) && digits.len() == 2 && metadata.is_file());
    match key {
        Some(key) if name.len() == stem.len() => Item::Value { key, path, metadata },
        Some(_) if name.ends_with(TEMPORARY) => Item::Temporary { path, metadata },
        _ => Item::Foreign,
    }
}
