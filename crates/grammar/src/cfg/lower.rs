//! Rules as automata that call each other.

use super::ast::{Expr, Grammar, Pattern, Rule};
use super::cursor::place;
use super::{Parsed, Rules};
use crate::GrammarError;
use crate::nfa::{RuleId, State};
use crate::regex::{Extent, add_parsed};

/// Where what repeats any number of times is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lists {
    /// In the rule that has it: takes no place of the stack.
    Within,
    /// In a rule of its own, if it uses rules.
    Apart,
}

/// Adds the texts of a grammar, between two states of the answer's rule.
pub(super) fn lower<'a>(
    rules: &mut Rules<'a, '_>,
    parsed: &'a Parsed<'_>,
    from: State,
    to: State,
) -> Result<(), GrammarError> {
    // Rules that schemas have made meanwhile have no names.
    rules.names.resize(rules.nfa.num_rules(), "");
    let first = rules.nfa.num_rules() as RuleId;
    let grammar = &parsed.grammar;
    for rule in &grammar.rules {
        let id = rules.new_rule(&rule.name)?;
        if rule.is_terminal {
            rules.terminals.push(id);
        }
    }
    let mut lowering =
        Lowering { rules, text: parsed.text, grammar, first, ignored: None, name: "" };
    if !grammar.ignored.is_empty() {
        lowering.add_ignored()?;
    }
    for (number, rule) in grammar.rules.iter().enumerate() {
        let of_rule = lowering.rules.nfa.rule(lowering.id_of(number));
        lowering.name = &rule.name;
        let ignored = lowering.ignored.filter(|_| !rule.is_terminal);
        lowering.add(&rule.body, of_rule.start, of_rule.end, ignored)?;
    }
    lowering.add_start(from, to)
}

struct Lowering<'a, 'r, 'n> {
    rules: &'r mut Rules<'a, 'n>,
    text: &'a str,
    grammar: &'a Grammar,
    /// The id of the grammar's first rule.
    first: RuleId,
    /// The rule of all that is ignored.
    ignored: Option<RuleId>,
    /// The rule that is being built.
    name: &'a str,
}

impl Lowering<'_, '_, '_> {
    fn id_of(&self, number: usize) -> RuleId {
        self.first + number as RuleId
    }

    /// The answer's own rule is never called: its start need not know first bytes.
    fn add_start(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        let mut at = from;
        if let Some(ignored) = self.ignored {
            let next = self.rules.nfa.state()?;
            self.rules.nfa.call(at, ignored, next)?;
            at = next;
        }
        self.rules.nfa.call(at, self.id_of(self.grammar.start), to)
    }

    /// Any number of what is ignored.
    fn add_ignored(&mut self) -> Result<(), GrammarError> {
        let id = self.rules.new_rule("%ignore")?;
        self.ignored = Some(id);
        let rule = self.rules.nfa.rule(id);
        let any = self.rules.nfa.state()?;
        self.rules.nfa.skip(rule.start, any)?;
        for part in &self.grammar.ignored {
            self.add(part, any, any, None)?;
        }
        self.rules.nfa.skip(any, rule.end)
    }

    /// Adds the texts of a part of a rule, with ignored text behind each terminal.
    fn add(
        &mut self,
        part: &Expr,
        from: State,
        to: State,
        ignored: Option<RuleId>,
    ) -> Result<(), GrammarError> {
        match part {
            Expr::Sequence(parts) => self.sequence(parts, from, to, ignored),
            Expr::Choice(parts) => {
                parts.iter().try_for_each(|part| self.add(part, from, to, ignored))
            }
            Expr::Repeat { part, min, max } => self.repeat(part, (*min, *max), from, to, ignored),
            Expr::Rule(number) if !self.rule(*number).is_terminal => {
                self.rules.nfa.call(from, self.id_of(*number), to)
            }
            terminal => match ignored {
                None => self.terminal(terminal, from, to),
                Some(ignored) => {
                    let behind = self.rules.nfa.state()?;
                    self.terminal(terminal, from, behind)?;
                    self.rules.nfa.call(behind, ignored, to)
                }
            },
        }
    }

    fn rule(&self, number: usize) -> &Rule {
        &self.grammar.rules[number]
    }

    fn terminal(&mut self, part: &Expr, from: State, to: State) -> Result<(), GrammarError> {
        match part {
            Expr::Text(text) => self.rules.nfa.literal(text.as_bytes(), from, to),
            Expr::Chars(ranges) => {
                ranges.iter().try_for_each(|&(low, high)| self.rules.nfa.chars(low, high, from, to))
            }
            Expr::Pattern(pattern) => self.pattern(pattern, from, to),
            Expr::Rule(number) => self.rules.nfa.call(from, self.id_of(*number), to),
            // What has parts is no terminal by itself.
            Expr::Sequence(_) | Expr::Choice(_) | Expr::Repeat { .. } => {
                self.add(part, from, to, None)
            }
        }
    }

    fn pattern(&mut self, pattern: &Pattern, from: State, to: State) -> Result<(), GrammarError> {
        let added =
            add_parsed(self.rules.nfa, &pattern.text, pattern.options, Extent::Whole, from, to);
        let here = || place(self.text, pattern.at, self.name);
        added.map_err(|error| match error {
            GrammarError::Invalid { message, .. } => GrammarError::invalid(message, &here()),
            GrammarError::Unsupported { name, .. } => GrammarError::unsupported(name, &here()),
            error => error,
        })
    }

    fn sequence(
        &mut self,
        parts: &[Expr],
        from: State,
        to: State,
        ignored: Option<RuleId>,
    ) -> Result<(), GrammarError> {
        let Some((last, first)) = parts.split_last() else { return self.rules.nfa.skip(from, to) };
        let mut at = from;
        for part in first {
            let next = self.rules.nfa.state()?;
            self.add(part, at, next, ignored)?;
            at = next;
        }
        self.add(last, at, to, ignored)
    }

    fn repeat(
        &mut self,
        part: &Expr,
        (min, max): (u32, Option<u32>),
        from: State,
        to: State,
        ignored: Option<RuleId>,
    ) -> Result<(), GrammarError> {
        let mut at = from;
        for _ in 0..min {
            let next = self.rules.nfa.state()?;
            self.add(part, at, next, ignored)?;
            at = next;
        }
        let Some(max) = max else {
            if self.rules.lists == Lists::Within || !self.uses_rules(part) {
                return self.any_number(part, at, to, ignored);
            }
            let list = self.rules.new_rule(self.name)?;
            let of_list = self.rules.nfa.rule(list);
            self.any_number(part, of_list.start, of_list.end, ignored)?;
            return self.rules.nfa.call(at, list, to);
        };
        for _ in min..max {
            self.rules.nfa.skip(at, to)?;
            let next = self.rules.nfa.state()?;
            self.add(part, at, next, ignored)?;
            at = next;
        }
        self.rules.nfa.skip(at, to)
    }

    fn any_number(
        &mut self,
        part: &Expr,
        from: State,
        to: State,
        ignored: Option<RuleId>,
    ) -> Result<(), GrammarError> {
        let again = self.rules.nfa.state()?;
        self.rules.nfa.skip(from, again)?;
        self.add(part, again, again, ignored)?;
        self.rules.nfa.skip(again, to)
    }

    /// Whether a part uses rules that are no terminals.
    fn uses_rules(&self, part: &Expr) -> bool {
        match part {
            Expr::Text(_) | Expr::Chars(_) | Expr::Pattern(_) => false,
            Expr::Rule(number) => !self.rule(*number).is_terminal,
            Expr::Sequence(parts) | Expr::Choice(parts) => {
                parts.iter().any(|part| self.uses_rules(part))
            }
            Expr::Repeat { part, .. } => self.uses_rules(part),
        }
    }
}
