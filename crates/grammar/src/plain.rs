//! How much plain text may follow a state, whatever the stack holds: characters but `"`, `\` and
//! controls. Where that is known, so are the tokens of such characters, and the device need not walk
//! them (`device/grammar/mask.hpp`).

use crate::GrammarError;
use crate::assemble::FlatState;
use crate::fuel::Fuel;
use crate::utf8::byte_sequences;

/// Characters that count (`SAC_GRAMMAR_PLAIN_BYTES`: a character has a byte or more).
pub(crate) const PLAIN_CHARS: usize = 32;
const MOST: u8 = PLAIN_CHARS as u8;
/// Places of the stack that they take at most (`SAC_GRAMMAR_PLAIN_PLACES`).
pub(crate) const PLAIN_PLACES: u32 = 8;
/// What JSON strings and texts take as it is.
const PLAIN: [(char, char); 4] = [(' ', '!'), ('#', '['), (']', '~'), ('\u{80}', char::MAX)];

/// Where a character leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// To a state, with another one pushed.
    State(u32, Option<u32>),
    /// Out of the rule, before it was taken: to what the stack has.
    Return,
    /// Anywhere.
    Unknown,
}

/// Where plain characters lead from a state.
struct Ahead {
    after: Vec<After>,
    /// All of them are taken, or return.
    is_complete: bool,
}

/// For each state: [`PLAIN_CHARS`] if any that many characters may follow; n, if any n may follow
/// and no more; 0 otherwise.
pub(crate) fn plain_chars(states: &[FlatState], fuel: &mut Fuel) -> Result<Vec<u8>, GrammarError> {
    let mut ahead: Vec<Ahead> = Vec::with_capacity(states.len());
    for (i, state) in states.iter().enumerate() {
        fuel.burn(4 + 2 * state.edges.len())?;
        ahead.push(Ahead::of(states, i as u32));
    }
    let least = chars_at_least(states, &ahead, fuel)?;
    let most = chars_at_most(states, &ahead, fuel)?;
    let places = places_ahead(states, &ahead, fuel)?;
    let known = |i: usize| {
        let is_known = least[i] == MOST || least[i] == most[i];
        if is_known && places[i] <= PLAIN_PLACES { least[i] } else { 0 }
    };
    Ok((0..states.len()).map(known).collect())
}

impl Ahead {
    fn of(states: &[FlatState], state: u32) -> Ahead {
        let mut ahead = Ahead { after: Vec::new(), is_complete: true };
        for sequence in PLAIN.iter().flat_map(|&(low, high)| byte_sequences(low, high)) {
            ahead.follow(states, (state, None), &sequence, false);
        }
        ahead
    }

    fn add(&mut self, after: After) {
        if !self.after.contains(&after) {
            self.after.push(after);
        }
    }

    /// Follows the bytes of a character from a state, with a state pushed since its first byte.
    fn follow(
        &mut self,
        states: &[FlatState],
        (state, pushed): (u32, Option<u32>),
        bytes: &[(u8, u8)],
        begun: bool,
    ) {
        let FlatState { is_final, ref edges, .. } = states[state as usize];
        let Some((&(low, high), rest)) = bytes.split_first() else {
            // A rule that is over here returns at once.
            let over = pushed.filter(|_| is_final && edges.is_empty());
            self.add(over.map_or(After::State(state, pushed), |back| After::State(back, None)));
            return;
        };
        let mut next = u16::from(low);
        let mut has_gap = false;
        for edge in edges.iter().filter(|edge| edge.low <= high && low <= edge.high) {
            has_gap |= u16::from(edge.low) > next;
            next = u16::from(edge.high) + 1;
            if pushed.is_some() && edge.push.is_some() {
                self.is_complete = false;
                self.add(After::Unknown);
            } else {
                self.follow(states, (edge.target, edge.push.or(pushed)), rest, true);
            }
        }
        if has_gap || next <= u16::from(high) {
            if is_final {
                self.add(if begun { After::Unknown } else { After::Return });
            }
            self.is_complete &= is_final && !begun;
        }
    }
}

/// Plain characters that may follow each state at least, up to [`PLAIN_CHARS`]: the greatest
/// numbers of which each is one more than the least of those that a character leads to.
fn chars_at_least(
    states: &[FlatState],
    ahead: &[Ahead],
    fuel: &mut Fuel,
) -> Result<Vec<u8>, GrammarError> {
    let mut chars: Vec<u8> =
        ahead.iter().map(|ahead| if ahead.is_complete { MOST } else { 0 }).collect();
    // The least that may follow where a state's rule returns to; the answer's rule does not.
    let mut behind = vec![MOST; states.len()];
    behind[0] = 0;
    let mut changed = true;
    while changed {
        changed = false;
        for (i, state) in states.iter().enumerate() {
            fuel.burn(1 + state.edges.len() / 4)?;
            for edge in &state.edges {
                let back = edge.push.map_or(behind[i], |back| chars[back as usize]);
                changed |= lower(&mut behind[edge.target as usize], back);
            }
            let least = ahead[i].after.iter().map(|after| match *after {
                After::State(to, _) => one_more(chars[to as usize]),
                After::Return => behind[i],
                After::Unknown => 0,
            });
            let least = least.min().unwrap_or(0);
            changed |= lower(&mut chars[i], least);
        }
    }
    Ok(chars)
}

/// Plain characters that may follow each state at most; [`PLAIN_CHARS`] includes more.
fn chars_at_most(
    states: &[FlatState],
    ahead: &[Ahead],
    fuel: &mut Fuel,
) -> Result<Vec<u8>, GrammarError> {
    let mut chars = vec![0_u8; states.len()];
    let mut behind = vec![0_u8; states.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (i, state) in states.iter().enumerate() {
            fuel.burn(1 + state.edges.len() / 4)?;
            for edge in &state.edges {
                let back = edge.push.map_or(behind[i], |back| chars[back as usize]);
                changed |= raise(&mut behind[edge.target as usize], back);
            }
            let most = ahead[i].after.iter().map(|after| match *after {
                After::State(to, _) => one_more(chars[to as usize]),
                After::Return => behind[i],
                After::Unknown => MOST,
            });
            let most = most.max().unwrap_or(0);
            changed |= raise(&mut chars[i], most);
        }
    }
    Ok(chars)
}

fn one_more(chars: u8) -> u8 {
    (chars + 1).min(MOST)
}
/// Lowers a number to another; whether it was above.
fn lower(number: &mut u8, to: u8) -> bool {
    std::mem::replace(number, to.min(*number)) > to
}
/// Raises a number to another; whether it was below.
fn raise(number: &mut u8, to: u8) -> bool {
    std::mem::replace(number, to.max(*number)) < to
}

/// Places of the stack that must be free for plain characters from each state on: those that they
/// push, and those that the ways out need meanwhile. The least numbers that hold, up to one beyond
/// [`PLAIN_PLACES`].
fn places_ahead(
    states: &[FlatState],
    ahead: &[Ahead],
    fuel: &mut Fuel,
) -> Result<Vec<u32>, GrammarError> {
    let mut places = vec![0_u32; states.len()];
    // The same from where a state's rule returns to, seen from the rule.
    let mut behind = vec![0_u32; states.len()];
    let need = |state: u32| states[state as usize].need;
    let mut changed = true;
    while changed {
        changed = false;
        for (i, state) in states.iter().enumerate() {
            fuel.burn(1 + state.edges.len() / 4)?;
            for edge in &state.edges {
                let most =
                    edge.push.map_or(behind[i], |back| places[back as usize].saturating_sub(1));
                let old = &mut behind[edge.target as usize];
                changed |= most > *old;
                *old = most.max(*old);
            }
            let at = |state: u32| places[state as usize].max(need(state));
            let most = ahead[i].after.iter().map(|after| match *after {
                After::State(to, None) => at(to),
                After::State(to, Some(back)) => (at(to) + 1).max(at(back)),
                After::Return => behind[i],
                After::Unknown => PLAIN_PLACES + 1,
            });
            let most = most.max().unwrap_or(0).min(PLAIN_PLACES + 1);
            changed |= most > places[i];
            places[i] = most.max(places[i]);
        }
    }
    Ok(places)
}
