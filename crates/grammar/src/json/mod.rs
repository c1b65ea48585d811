//! JSON values as automata: any value, or the values that a JSON Schema accepts.
//!
//! Members come in the order in which the schema names them, others after them. Between tokens
//! there may be a space, or a line break with an indent of at most 40 bytes. Numbers and escapes
//! are written in fewer ways than JSON has, so that every text that is accepted is read alike by
//! every parser.

mod array;
mod formats;
mod judge;
mod keywords;
mod merge;
mod names;
mod negate;
mod number;
mod object;
mod parts;
mod refs;
mod repeat;
mod schema;
mod split;
mod string;
mod texts;
mod types;
mod values;

use serde_json::Value;

use crate::GrammarError;
use crate::nfa::{Nfa, State};
pub(crate) use schema::Common;
use schema::Compiler;

/// The answer is any JSON object.
pub(crate) fn compile_object(nfa: &mut Nfa) -> Result<(), GrammarError> {
    let main = nfa.main();
    let root = Value::Bool(true);
    Compiler::new(nfa, &mut Common::default(), &root).any_object(main.start, main.end)
}

/// What the schema `text` accepts, from one state to another.
pub(crate) fn add_schema(
    nfa: &mut Nfa,
    text: &str,
    from: State,
    to: State,
) -> Result<(), GrammarError> {
    // serde_json bounds the depth: 128.
    let root: Value = serde_json::from_str(text)
        .map_err(|e| GrammarError::invalid(format!("the schema is not JSON: {e}"), ""))?;
    add_value(nfa, &mut Common::default(), &root, from, to)
}

/// The same of a schema that was read, beside others that have rules in common with it.
pub(crate) fn add_value(
    nfa: &mut Nfa,
    common: &mut Common,
    root: &Value,
    from: State,
    to: State,
) -> Result<(), GrammarError> {
    let text = root.to_string();
    let rule = match common.documents.get(&text) {
        Some(&rule) => rule,
        None => {
            let rule = Compiler::new(nfa, common, root).referred("#", "")?;
            common.documents.insert(text, rule);
            rule
        }
    };
    nfa.call(from, rule, to)
}
