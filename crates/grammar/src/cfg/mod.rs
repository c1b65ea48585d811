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
use crate::nfa::Nfa;
use ast::{Grammar, Rule};
use components::Components;
use lower::Lists;

/// The deterministic rules of the grammar that `text` writes.
pub(crate) fn compile(nfa: &mut Nfa, text: &str) -> Result<Vec<RuleDfa>, GrammarError> {
    let grammar = if is_lark(text) { lark::parse(text)? } else { gbnf::parse(text)? };
    match compile_with(nfa, text, &grammar, Lists::Within) {
        // A list that is a rule can have copies of what it lists.
        Err(error @ GrammarError::Unsupported { .. }) => {
            *nfa = Nfa::new(nfa.fuel.take());
            compile_with(nfa, text, &grammar, Lists::Apart).map_err(|_| error)
        }
        compiled => compiled,
    }
}

fn compile_with(
    nfa: &mut Nfa,
    text: &str,
    grammar: &Grammar,
    lists: Lists,
) -> Result<Vec<RuleDfa>, GrammarError> {
    let names = lower::lower(nfa, text, grammar, lists)?;
    let calls = components::of_calls(nfa)?;
    refuse_endless_terminals(grammar, &calls)?;
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
fn refuse_endless_terminals(grammar: &Grammar, calls: &Components) -> Result<(), GrammarError> {
    let is_endless = |(rule, number): &(&Rule, usize)| {
        rule.is_terminal && calls.is_cyclic(lower::id_of(*number))
    };
    match grammar.rules.iter().zip(0..).find(is_endless) {
        None => Ok(()),
        Some((rule, _)) => {
            let name = format!("the terminal `{}`, which refers to itself,", rule.name);
            Err(GrammarError::unsupported(name, ""))
        }
    }
}
