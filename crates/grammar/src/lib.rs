//! Grammars for answers. A regular expression, a list of choices, a JSON Schema, a context-free
//! grammar or a structural tag becomes an automaton over bytes with a bounded stack: plain data,
//! which the device walks inside sampling (`device/grammar/`, `docs/adr/0021-grammars.md`).
//!
//! The language of an automaton is a subset of what the source allows, never more: what cannot be
//! compiled exactly or more narrowly is refused by name. Compiling is bounded by [`Limits`], does
//! not read a clock, and gives the same words for the same source.

mod assemble;
mod cfg;
mod chars;
mod classes;
mod defaults;
mod dfa;
mod error;
mod forced;
mod fuel;
mod json;
mod minimize;
mod nfa;
mod pattern;
mod plain;
mod regex;
mod runs;
mod tags;
mod utf8;
mod vocabulary;
mod walk;
mod words;

pub use error::{Bound, GrammarError};
pub use forced::{TokenOrder, Writer};
pub use vocabulary::Vocabulary;
pub use walk::Walk;
pub use words::{Automaton, MAX_STACK};

use dfa::RuleDfa;
use fuel::Fuel;
use nfa::Nfa;

/// What an answer must look like.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// The whole answer matches this regular expression.
    Regex(String),
    /// The answer is one of these texts.
    Choice(Vec<String>),
    /// The answer is any JSON object.
    JsonObject,
    /// The answer is JSON text that this JSON Schema, itself JSON text, accepts.
    JsonSchema(String),
    /// The answer obeys this context-free grammar, in GBNF or in Lark's notation.
    Grammar(String),
    /// The answer is what this structural tag, itself JSON text, says: free text with tags in it,
    /// whose contents have forms.
    StructuralTag(String),
}

impl Source {
    /// Bytes of text in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Source::Regex(text)
            | Source::JsonSchema(text)
            | Source::Grammar(text)
            | Source::StructuralTag(text) => text.len(),
            Source::Choice(texts) => texts.iter().map(String::len).sum(),
            Source::JsonObject => 0,
        }
    }
}

/// Bounds of compiling one grammar.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of text in the source.
    pub source_bytes: usize,
    /// Steps of the compiler, some ten nanoseconds each. They bound its memory as well: a step
    /// makes at most some 32 bytes.
    pub fuel: u64,
    /// Words of the automaton: what the device has room for.
    pub words: usize,
}

impl Limits {
    /// Those of a server without flags.
    pub const DEFAULT: Limits =
        Limits { source_bytes: 256 * 1024, fuel: 6_000_000, words: 32 * 1024 };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

/// Compiles a grammar.
///
/// # Errors
/// Names what is not supported, wrong, or beyond a limit.
pub fn compile(source: &Source, limits: &Limits) -> Result<Automaton, GrammarError> {
    compile_for(source, limits, None)
}

/// Compiles a grammar for answers of one tokenizer, and names the tokens of which it leaves no
/// choice: as many as the limits have steps and words for.
///
/// # Errors
/// As [`compile`].
pub fn compile_for(
    source: &Source,
    limits: &Limits,
    writer: Option<&Writer<'_>>,
) -> Result<Automaton, GrammarError> {
    if source.bytes() > limits.source_bytes {
        return Err(GrammarError::TooLarge {
            bound: Bound::Source("the grammar's text in bytes"),
            limit: limits.source_bytes as u64,
        });
    }
    let mut nfa = Nfa::new(Fuel::new(limits.fuel));
    let rules = rules_of(&mut nfa, source)?;
    let mut states = assemble::assemble(&rules, &mut nfa.fuel).map_err(|error| match error {
        GrammarError::Unsatisfiable => nfa.left_out.take().unwrap_or(error),
        error => error,
    })?;
    plain::find_plain(&mut states, &mut nfa.fuel)?;
    let mut states = minimize::minimize(states, &mut nfa.fuel)?;
    defaults::share_edges(&mut states, &mut nfa.fuel)?;
    let forced = writer.map(|writer| forced::find_forced(&states, writer, &mut nfa.fuel));
    words::pack(&states, &forced.unwrap_or_default(), limits.words)
}

/// The rules of what an answer must look like.
fn rules_of(nfa: &mut Nfa, source: &Source) -> Result<Vec<RuleDfa>, GrammarError> {
    match source {
        Source::Regex(text) => regex::compile(nfa, text)?,
        Source::Choice(texts) => choice(nfa, texts)?,
        Source::JsonObject => json::compile_object(nfa)?,
        Source::JsonSchema(text) => {
            let main = nfa.main();
            json::add_schema(nfa, text, main.start, main.end)?;
        }
        Source::Grammar(text) => return cfg::compile(nfa, text),
        Source::StructuralTag(text) => return tags::compile(nfa, text),
    }
    dfa::determinize(nfa)
}

fn choice(nfa: &mut Nfa, texts: &[String]) -> Result<(), GrammarError> {
    let main = nfa.main();
    for text in texts {
        nfa.literal(text.as_bytes(), main.start, main.end)?;
    }
    Ok(())
}
