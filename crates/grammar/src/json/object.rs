//! Objects.

use std::collections::BTreeSet;

use serde_json::Value;

use super::names::Others;
use super::schema::{Compiler, Schema, count};
use super::values::literal;
use crate::GrammarError;
use crate::nfa::State;

/// A member that has a name.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) schema: Value,
    pub(super) required: bool,
}

/// Places behind 0, 1, 2, … members that were written.
struct Lanes {
    states: Vec<State>,
    /// The last lane is also that of all greater numbers.
    open: bool,
}

impl Lanes {
    fn last(&self) -> usize {
        self.states.len() - 1
    }
    /// The lanes from which one more member leads to lane `to`.
    fn before(&self, to: usize) -> impl Iterator<Item = usize> + use<> {
        let (last, open) = (self.last(), self.open);
        std::iter::once(to - 1).chain((to == last && open).then_some(last))
    }
}

impl Compiler<'_> {
    /// An object of what the keywords say. Members come in the order of `properties`, then those
    /// that are only required, then others.
    pub(super) fn object(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let others = Others::read(schema, path)?;
        let members = self.members(schema, &others, path)?;
        let num_required = members.iter().filter(|member| member.required).count();
        let min = count(schema, "minProperties", path)?.filter(|&min| min > num_required);
        let min = min.unwrap_or(0);
        let most = (!others.are_allowed()).then_some(members.len());
        let max = count(schema, "maxProperties", path)?;
        let max = max.filter(|&max| most.is_none_or(|most| max < most));
        let never = |member: &Member| member.required && member.schema == Value::Bool(false);
        if members.iter().any(never)
            || max.is_some_and(|max| max < min.max(num_required))
            || most.is_some_and(|most| most < min)
        {
            return Ok(());
        }
        let open = self.token(b'{', from)?;
        if max == Some(0) {
            return self.nfa.literal(b"}", open, to);
        }
        let mut lanes = self.lanes(max.unwrap_or(min.max(1)), max.is_none())?;
        lanes.states[0] = open;
        for member in members.iter().filter(|member| member.schema != Value::Bool(false)) {
            lanes = self.written(member, lanes, path)?;
        }
        for (count, &lane) in lanes.states.iter().enumerate().skip(min) {
            match count {
                // Without members, the gap behind the bracket is also the one before the other.
                0 => self.nfa.literal(b"}", lane, to)?,
                _ => self.close(b'}', lane, to)?,
            }
        }
        if others.are_allowed() {
            self.others(&others, &members, (&lanes, min), to, path)?;
        }
        Ok(())
    }

    fn lanes(&mut self, last: usize, open: bool) -> Result<Lanes, GrammarError> {
        let states = (0..=last).map(|_| self.nfa.state()).collect::<Result<_, _>>()?;
        Ok(Lanes { states, open })
    }

    /// The lanes behind a member.
    fn written(
        &mut self,
        member: &Member,
        lanes: Lanes,
        path: &str,
    ) -> Result<Lanes, GrammarError> {
        let after = self.lanes(lanes.last(), lanes.open)?;
        let path = format!("{path}/properties/{}", pointer_token(&member.name));
        let name = literal(&Value::from(member.name.as_str()));
        for count in 1..=lanes.last() {
            let begin = self.nfa.state()?;
            for before in lanes.before(count) {
                self.next_member(&lanes, before, begin)?;
            }
            let behind = self.nfa.state()?;
            self.nfa.literal(name.as_bytes(), begin, behind)?;
            let value = self.token(b':', behind)?;
            self.part(&member.schema, value, after.states[count], &path)?;
        }
        if !member.required {
            for (&lane, &after) in lanes.states.iter().zip(&after.states) {
                self.nfa.skip(lane, after)?;
            }
        }
        Ok(after)
    }

    /// From behind `count` members to where one more begins.
    fn next_member(&mut self, lanes: &Lanes, count: usize, to: State) -> Result<(), GrammarError> {
        let lane = lanes.states[count];
        let from = if count == 0 { lane } else { self.token(b',', lane)? };
        self.nfa.skip(from, to)
    }

    /// Members that are not named, behind the named ones, and the bracket behind them. They may
    /// have one name, so all of them count as one member towards `min`.
    fn others(
        &mut self,
        others: &Others<'_>,
        members: &[Member],
        (named, min): (&Lanes, usize),
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let lanes = self.lanes(named.last(), named.open)?;
        let other = self.other_member(others, members, path)?;
        for count in 1..=lanes.last() {
            let begin = self.nfa.state()?;
            for before in named.before(count).filter(|before| before + 1 >= min) {
                self.next_member(named, before, begin)?;
            }
            for before in lanes.before(count).filter(|&before| before > 0) {
                self.next_member(&lanes, before, begin)?;
            }
            self.add_other(&other, begin, lanes.states[count])?;
            self.close(b'}', lanes.states[count], to)?;
        }
        Ok(())
    }

    /// All members with names, in order: those of `properties`, then others that are required.
    fn members(
        &mut self,
        schema: &Schema,
        others: &Others<'_>,
        path: &str,
    ) -> Result<Vec<Member>, GrammarError> {
        let properties = match schema.get("properties") {
            None => None,
            Some(Value::Object(properties)) => Some(properties),
            Some(_) => return Err(GrammarError::invalid("`properties` must be an object", path)),
        };
        let required = required(schema, path)?;
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let is_required: BTreeSet<&str> = required.iter().copied().collect();
        let mut members = Vec::new();
        for (name, schema) in properties.into_iter().flatten() {
            seen.insert(name);
            let schema = self.named_schema(name, Some(schema), others, path)?;
            let required = is_required.contains(name.as_str());
            members.push(Member { name: name.clone(), schema, required });
        }
        for name in required {
            if seen.insert(name) {
                let schema = self.named_schema(name, None, others, path)?;
                members.push(Member { name: name.to_owned(), schema, required: true });
            }
        }
        Ok(members)
    }
}

fn required<'v>(schema: &'v Schema, path: &str) -> Result<Vec<&'v str>, GrammarError> {
    let wrong = || GrammarError::invalid("`required` must be a list of strings", path);
    match schema.get("required") {
        None => Ok(Vec::new()),
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// A name as a part of a JSON pointer.
pub(super) fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
