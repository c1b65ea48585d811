//! Structural tags: text that is free, or of a form, from one marker to the next. Requests write
//! them in JSON, as XGrammar, vLLM and SGLang read it.
//!
//! What is read (`read.rs`) is a tree of formats (`format.rs`). All of it is one rule (`build.rs`):
//! formats do not call themselves, so only what schemas and grammars have in them are rules.
//! Free text knows the markers that end it (`free.rs`).

mod build;
mod format;
mod free;
mod members;
mod read;

use serde_json::Value;

use crate::dfa::RuleDfa;
use crate::nfa::Nfa;
use crate::{GrammarError, cfg};

/// The deterministic rules of the structural tag that `text` writes.
pub(crate) fn compile(nfa: &mut Nfa, text: &str) -> Result<Vec<RuleDfa>, GrammarError> {
    // serde_json bounds the depth: 128.
    let document: Value = serde_json::from_str(text)
        .map_err(|e| GrammarError::invalid(format!("the structural tag is not JSON: {e}"), ""))?;
    let format = read::read(&document)?;
    let main = nfa.main();
    cfg::settle(nfa, |rules| build::add(rules, &format, main.start, main.end))
}
