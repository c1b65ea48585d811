//! Arrays.

use serde_json::Value;

use super::schema::{Compiler, Schema, count};
use crate::GrammarError;
use crate::nfa::{RuleId, State};

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
        // Behind the first `at` items.
        let (mut at, mut items) = (open, 0);
        let mut rest = None;
        loop {
            let looping = max.is_none() && items >= min.max(prefix.len() + 1);
            if max.is_some_and(|max| items >= max) {
                return Ok(());
            }
            let before = if items == 0 { at } else { self.token(b',', at)? };
            let Some(rule) = self.item_rule(schema, prefix, items, &mut rest, path)? else {
                return Ok(());
            };
            let behind = if looping { at } else { self.nfa.state()? };
            self.nfa.call(before, rule, behind)?;
            if looping {
                return Ok(());
            }
            items += 1;
            if items >= min {
                self.close(b']', behind, to)?;
            }
            at = behind;
        }
    }

    /// The rule of the item with this index; none may be there if it is `false`. Items behind the
    /// prefix share `rest`.
    fn item_rule(
        &mut self,
        schema: &Schema,
        prefix: &[Value],
        index: usize,
        rest: &mut Option<RuleId>,
        path: &str,
    ) -> Result<Option<RuleId>, GrammarError> {
        let item = prefix.get(index).or_else(|| schema.get("items")).unwrap_or(&Value::Bool(true));
        if *item == Value::Bool(false) {
            return Ok(None);
        }
        if index < prefix.len() {
            let path = format!("{path}/prefixItems/{index}");
            return self.own_rule(|c, start, end| c.schema(item, start, end, &path)).map(Some);
        }
        if rest.is_none() {
            let path = format!("{path}/items");
            *rest = Some(self.own_rule(|c, start, end| c.schema(item, start, end, &path))?);
        }
        Ok(*rest)
    }
}
