//! Keywords that make alternatives of a schema.

use serde_json::{Value, json};

use super::merge::{COPY_STEPS, are_disjoint, num_values};
use super::schema::{Compiler, Schema, list};
use crate::GrammarError;
use crate::nfa::State;

impl Compiler<'_> {
    /// One of the keywords that make alternatives of a schema, whose `$ref` has been followed.
    pub(super) fn split(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let mut base = self.copied(schema)?;
        for (keyword, exclusive) in [("anyOf", false), ("oneOf", true)] {
            if let Some(branches) = base.remove(keyword) {
                list(&branches, keyword, path)?;
                let Value::Array(branches) = branches else { return Ok(()) };
                let branches =
                    if exclusive { self.exclusive(branches, &base, path)? } else { branches };
                return self.one_of(&base, &branches, keyword, (from, to), path);
            }
        }
        let (keyword, branches) = if let Some(refused) = base.remove("not") {
            let others = self.negated(&refused, &base, &format!("{path}/not"))?;
            ("not", others.into_iter().map(Value::Object).collect())
        } else if let Some(branches) = self.condition(&mut base, path)? {
            ("if", branches)
        } else {
            ("dependencies", dependency(&mut base, path)?)
        };
        self.one_of(&base, &branches, keyword, (from, to), path)
    }

    /// Takes `if`, `then` and `else` out of a schema: what they leave is one of the alternatives.
    fn condition(
        &mut self,
        base: &mut Schema,
        path: &str,
    ) -> Result<Option<Vec<Value>>, GrammarError> {
        let [condition, then, otherwise] =
            ["if", "then", "else"].map(|keyword| base.remove(keyword));
        if condition.is_none() && then.is_none() && otherwise.is_none() {
            return Ok(None);
        }
        let (then, otherwise) =
            (then.unwrap_or(Value::Bool(true)), otherwise.unwrap_or(Value::Bool(true)));
        let Some(condition) = condition else { return Ok(Some(vec![Value::Bool(true)])) };
        let mut branches: Vec<Value> = self
            .negated(&condition, base, &format!("{path}/if"))?
            .into_iter()
            .map(|other| json!({"allOf": [other, otherwise]}))
            .collect();
        branches.insert(0, json!({"allOf": [condition, then]}));
        Ok(Some(branches))
    }

    pub(super) fn all_of(
        &mut self,
        base: Schema,
        branches: &[Value],
        path: &str,
    ) -> Result<Value, GrammarError> {
        let mut all = base;
        for branch in branches {
            match branch {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(Value::Bool(false)),
                Value::Object(branch) => all = self.merged(&all, branch, path)?,
                _ => return Err(GrammarError::invalid("a schema must be an object", path)),
            }
        }
        Ok(Value::Object(all))
    }

    /// What one of the branches accepts.
    fn one_of(
        &mut self,
        base: &Schema,
        branches: &[Value],
        keyword: &str,
        (from, to): (State, State),
        path: &str,
    ) -> Result<(), GrammarError> {
        for (i, branch) in branches.iter().enumerate() {
            let merged = match branch {
                Value::Bool(false) => continue,
                Value::Bool(true) => base.clone(),
                Value::Object(branch) => match self.merged(base, branch, path) {
                    Err(GrammarError::Unsatisfiable) => continue,
                    merged => merged?,
                },
                _ => return Err(GrammarError::invalid("a schema must be an object", path)),
            };
            let path = format!("{path}/{keyword}/{i}");
            self.schema(&Value::Object(merged), from, to, &path)?;
        }
        Ok(())
    }

    /// The branches of `oneOf`, each without the values of others that it may overlap.
    fn exclusive(
        &mut self,
        branches: Vec<Value>,
        base: &Schema,
        path: &str,
    ) -> Result<Vec<Value>, GrammarError> {
        let mut merged = |branch: &Value| match branch {
            Value::Object(branch) => {
                let merged = self.merged(base, branch, path)?;
                self.followed(&merged, path)
            }
            Value::Bool(true) => Ok(base.clone()),
            _ => Err(GrammarError::Unsatisfiable),
        };
        let whole: Vec<Option<Schema>> = branches
            .iter()
            .map(|branch| match merged(branch) {
                Err(GrammarError::Unsatisfiable) => Ok(None),
                schema => schema.map(Some),
            })
            .collect::<Result<_, _>>()?;
        let mut exclusive = Vec::with_capacity(branches.len());
        for (i, a) in whole.iter().enumerate() {
            let Some(a) = a else { continue };
            let mut without = Vec::new();
            for (j, b) in whole.iter().enumerate() {
                let Some(b) = b.as_ref().filter(|_| j != i) else { continue };
                self.nfa.fuel.burn(64)?;
                if !are_disjoint(a, b, path)? {
                    self.nfa.fuel.burn(COPY_STEPS * num_values(b))?;
                    without.push(branches[j].clone());
                }
            }
            exclusive.push(match without.len() {
                0 => branches[i].clone(),
                _ => json!({"allOf": [branches[i], {"not": {"anyOf": without}}]}),
            });
        }
        Ok(exclusive)
    }
}

/// Takes one dependency out of a schema: a value lacks the member, or obeys what depends on it.
fn dependency(base: &mut Schema, path: &str) -> Result<Vec<Value>, GrammarError> {
    for keyword in ["dependencies", "dependentRequired", "dependentSchemas"] {
        let Some(all) = base.get_mut(keyword) else { continue };
        let Value::Object(all) = all else {
            let message = format!("`{keyword}` must be an object");
            return Err(GrammarError::invalid(message, path));
        };
        let Some(name) = all.keys().next().cloned() else {
            base.remove(keyword);
            continue;
        };
        let then = all.remove(&name).unwrap_or(Value::Bool(true));
        let then = if then.is_array() { json!({"required": then}) } else { then };
        let lacks = json!({"properties": {&name: false}});
        return Ok(vec![lacks, json!({"required": [name], "allOf": [then]})]);
    }
    Ok(vec![Value::Bool(true)])
}
