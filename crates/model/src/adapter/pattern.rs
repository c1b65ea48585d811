//! Keys of `rank_pattern` and `alpha_pattern`: regular expressions for the end of a module's name,
//! after its beginning or a dot. Of the expressions those are read that name modules: characters,
//! `\.`, `.`, `.*` and a leading `^`.

/// Longest key.
const MAX_KEY_BYTES: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// This character.
    One(char),
    /// `.`
    Any,
    /// `.*`
    Run,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    parts: Vec<Part>,
    /// With `^`: nothing may come before it.
    whole: bool,
}

impl Pattern {
    /// `None` for every other expression.
    pub(super) fn parse(key: &str) -> Option<Self> {
        let whole = key.starts_with('^');
        let mut rest = key.strip_prefix('^').unwrap_or(key);
        rest = rest.strip_suffix('$').unwrap_or(rest);
        if rest.is_empty() || rest.len() > MAX_KEY_BYTES {
            return None;
        }
        let mut parts = Vec::new();
        while let Some(first) = rest.chars().next() {
            let (part, len) = match first {
                '.' if rest.starts_with(".*") => (Part::Run, 2),
                '.' => (Part::Any, 1),
                '\\' if rest.starts_with("\\.") => (Part::One('.'), 2),
                c if c.is_ascii_alphanumeric() || c == '_' || c == '-' => (Part::One(c), 1),
                _ => return None,
            };
            parts.push(part);
            rest = &rest[len..];
        }
        Some(Self { parts, whole })
    }

    /// `re.match(rf"(.*\.)?({key})$", module)`.
    pub(super) fn matches(&self, module: &str) -> bool {
        let ends = module.match_indices('.').map(|(dot, _)| &module[dot + 1..]);
        let mut starts = std::iter::once(module).chain(ends.filter(|_| !self.whole));
        starts.any(|rest| matches(&self.parts, rest))
    }
}

/// Greedy, and back to the last run when what follows it does not fit: no worse than the product
/// of the lengths.
fn matches(parts: &[Part], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut part, mut at) = (0, 0);
    let mut retry = None;
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Run) => {
                retry = Some((part, at));
                part += 1;
                continue;
            }
            Some(Part::Any) => (part, at) = (part + 1, at + 1),
            Some(Part::One(c)) if *c == text[at] => (part, at) = (part + 1, at + 1),
            _ => {
                let Some((run, taken)) = retry else { return false };
                retry = Some((run, taken + 1));
                (part, at) = (run + 1, taken + 1);
            }
        }
    }
    parts[part..].iter().all(|part| *part == Part::Run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(key: &str, module: &str) -> bool {
        Pattern::parse(key).is_some_and(|pattern| pattern.matches(module))
    }

    #[test]
    fn keys_match_as_in_peft() {
        let q = "model.layers.1.self_attn.q_proj";
        for key in [
            "q_proj",
            "self_attn.q_proj",
            "layers.1.self_attn.q_proj",
            q,
            "^model.layers.1.self_attn.q_proj",
            "q_proj$",
            r"1\.self_attn\.q_proj",
            ".*q_proj",
            "layers.1.*",
            "model.*.q_proj",
            "^.*q_proj",
            "layers...*q_proj",
        ] {
            assert!(fits(key, q), "{key}");
        }
        for key in ["proj", "_proj", "layers.1", "layers.11.*", "^layers.1.*", "q_pro", "k_proj"] {
            assert!(!fits(key, q), "{key}");
        }
        assert!(fits("layers.1.*", "model.layers.11.mlp.up_proj")); // a dot is any character
    }

    #[test]
    fn other_expressions_are_not_read() {
        for key in ["", "^", "(q|k)_proj", "q_proj+", "[0-9]", r"\d", "q_proj*", "a{2}", "é"] {
            assert_eq!(Pattern::parse(key), None, "{key}");
        }
    }
}
