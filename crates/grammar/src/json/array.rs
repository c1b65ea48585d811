//! Arrays.

use serde_json::Value;

use super::repeat::Unit;
use super::schema::{Compiler, Schema, count};
use crate::GrammarError;
use crate::nfa::{RuleId, State};

/// A comma and an item.
struct NextItem(RuleId);

impl Unit for NextItem {
    fn name(&self) -> String {
        format!("next item {}", self.0)
    }
    fn add(&self, c: &mut Compiler<'_>, from: State, to: State) -> Result<(), GrammarError> {
        let item = c.token(b',', from)?;
        c.nfa.call(item, self.0, to)
    }
}

impl Compiler<'_> {
    /// An array of what `items` and `prefixItems` say.
    pub(super) fn array(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let prefix: &[Value] = match schema.get("prefixItems") {
            None => &[],
            Some(Value::Array(items)) => items,
            Some(_) => return Err(GrammarError::invalid("`prefixItems` must be a list", path)),
        };
        if !prefix.is_empty() && self.is_older_than_prefix_items() {
            return Err(GrammarError::unsupported("`prefixItems` in a draft before 2020-12", path));
        }
        if schema.get("items").is_some_and(Value::is_array) {
            return Err(GrammarError::unsupported("`items` as a list", path));
        }
        let min = count(schema, "minItems", path)?.unwrap_or(0);
        let max = count(schema, "maxItems", path)?;
        let open = self.token(b'[', from)?;
        if min == 0 {
            // The gap behind the bracket is also the one before the other.
            self.nfa.literal(b"]", open, to)?;
        }
        // Behind `items` items.
        let (mut at, mut items) = (open, 0);
        for (i, item) in prefix.iter().enumerate() {
            if max.is_some_and(|max| items >= max) || *item == Value::Bool(false) {
                return Ok(());
            }
            let before = if items == 0 { at } else { self.token(b',', at)? };
            let rule = self.part_rule(item, &format!("{path}/prefixItems/{i}"))?;
            at = self.nfa.state()?;
            self.nfa.call(before, rule, at)?;
            items += 1;
            if items >= min {
                self.close(b']', at, to)?;
            }
        }
        let item = schema.get("items").unwrap_or(&Value::Bool(true));
        if max.is_some_and(|max| items >= max) || *item == Value::Bool(false) {
            return Ok(());
        }
        let rule = self.part_rule(item, &format!("{path}/items"))?;
        if items == 0 {
            at = self.nfa.state()?;
            self.nfa.call(open, rule, at)?;
            items += 1;
        }
        let last = self.nfa.state()?;
        let counts = (min.saturating_sub(items), max.map(|max| max - items));
        self.repeat(&NextItem(rule), counts, at, last)?;
        self.close(b']', last, to)
    }
}
