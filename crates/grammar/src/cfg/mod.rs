//! Context-free grammars as requests write them, in GBNF or in Lark's notation. They mean what they
//! say about characters: there is no lexer between the rules and the text.
//!
//! Rules become automata that call each other (`lower.rs`). Then what the walk cannot do as written
//! is rewritten: it never takes an empty text for a rule (`nullable.rs`), it must know the first
//! byte of what it enters (`recursion.rs`), and it stays in a rule as long as it can (`ends.rs`).

mod ast;
mod common;
mod components;
mod cursor;
mod ends;
mod gbnf;
mod lark;
mod lower;
mod nullable;
mod recursion;

use crate::GrammarError;
use crate::dfa::RuleDfa;
use crate::nfa::{Nfa, RuleId, State};
use ast::Grammar;
use components::Components;
use lower::Lists;

/// The deterministic rules of the grammar that `text` writes.
pub(crate) fn compile(nfa: &mut Nfa, text: &str) -> Result<Vec<RuleDfa>, GrammarError> {
    let parsed = Parsed::of(text)?;
    let main = nfa.main();
    settle(nfa, |rules| rules.add(&parsed, main.start, main.end))
}

/// A grammar that was read.
#[derive(Debug)]
pub(crate) struct Parsed<'t> {
    text: &'t str,
    grammar: Grammar,
}

impl<'t> Parsed<'t> {
    pub(crate) fn of(text: &'t str) -> Result<Parsed<'t>, GrammarError> {
        let grammar = if is_lark(text) { lark::parse(text)? } else { gbnf::parse(text)? };
        Ok(Parsed { text, grammar })
    }
}

/// Rules while they are made: those of grammars, and of schemas beside them.
pub(crate) struct Rules<'a, 'n> {
    pub(crate) nfa: &'n mut Nfa,
    lists: Lists,
    /// Of all rules by their ids; those of schemas have none.
    names: Vec<&'a str>,
    terminals: Vec<RuleId>,
}

impl<'a> Rules<'a, '_> {
    /// Adds the texts of a grammar between two states of the answer's rule.
    pub(crate) fn add(
        &mut self,
        parsed: &'a Parsed<'_>,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        lower::lower(self, parsed, from, to)
    }

    fn new_rule(&mut self, name: &'a str) -> Result<RuleId, GrammarError> {
        self.names.push(name);
        self.nfa.new_rule()
    }
}

/// The rules that `add` makes, rewritten until a greedy walk loses none of their texts. `add` is
/// called again, with other rules for lists, if that fails.
pub(crate) fn settle<'a>(
    nfa: &mut Nfa,
    add: impl Fn(&mut Rules<'a, '_>) -> Result<(), GrammarError>,
) -> Result<Vec<RuleDfa>, GrammarError> {
    match settle_with(nfa, &add, Lists::Within) {
        // A list that is a rule can have copies of what it lists.
        Err(error @ GrammarError::Unsupported { .. }) => {
            *nfa = Nfa::new(nfa.fuel.take());
            settle_with(nfa, &add, Lists::Apart).map_err(|_| error)
        }
        settled => settled,
    }
}

fn settle_with<'a>(
    nfa: &mut Nfa,
    add: &impl Fn(&mut Rules<'a, '_>) -> Result<(), GrammarError>,
    lists: Lists,
) -> Result<Vec<RuleDfa>, GrammarError> {
    let mut rules = Rules { nfa, lists, names: vec![""], terminals: Vec::new() };
    add(&mut rules)?;
    let Rules { nfa, mut names, terminals, .. } = rules;
    names.resize(nfa.num_rules(), "");
    let calls = components::of_calls(nfa)?;
    refuse_endless(&terminals, &calls, &names)?;
    nullable::go_around(nfa)?;
    recursion::remove_left(nfa, &names)?;
    recursion::make_loops(nfa, &calls)?;
    ends::settle(nfa, &names)
}

/// As vLLM tells the notations apart: only GBNF has `::=`, comments aside.
fn is_lark(text: &str) -> bool {
    text.lines().all(|line| {
        let end = ["#", "//"].iter().filter_map(|mark| line.find(mark)).min();
        !line[..end.unwrap_or(line.len())].contains("::=")
    })
}

/// A terminal is a regular expression: Lark does not let it refer to itself.
fn refuse_endless(
    terminals: &[RuleId],
    calls: &Components,
    names: &[&str],
) -> Result<(), GrammarError> {
    match terminals.iter().find(|&&rule| calls.is_cyclic(rule)) {
        None => Ok(()),
        Some(&rule) => {
            let name = format!("the terminal `{}`, which refers to itself,", names[rule as usize]);
            Err(GrammarError::unsupported(name, ""))
        }
    }
}
