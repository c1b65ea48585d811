//! How much plain text may follow a state, whatever the stack holds: characters but `"`, `\` and
//! controls. Where that is known, so are the tokens of such characters, and the device need not
//! walk them (`device/grammar/mask.hpp`).

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
    /// Out of the rule, to what the stack has: before the character was taken, or behind it.
    Return,
    Over,
    /// Anywhere.
    Unknown,
}

/// Where plain characters lead from a state.
struct Ahead {
    after: Vec<After>,
    /// All of them are taken, or return.
    is_complete: bool,
    /// Some of them are taken, or return.
    is_partial: bool,
}

/// Fills in for each state: [`PLAIN_CHARS`] if any that many characters may follow; n, if any n may
/// follow and no more; 0 otherwise. Before states are merged: what only the stack tells apart may
/// differ in this.
pub(crate) fn find_plain(states: &mut [FlatState], fuel: &mut Fuel) -> Result<(), GrammarError> {
    let mut ahead: Vec<Ahead> = Vec::with_capacity(states.len());
    for (i, state) in states.iter().enumerate() {
        fuel.burn(2 + state.edges.len())?;
        ahead.push(Ahead::of(states, i as u32));
    }
    let least = chars_at_least(states, &ahead, fuel)?;
    let most = chars_at_most(states, &ahead, &least, fuel)?;
    let places = places_ahead(states, &ahead, fuel)?;
    for (i, state) in states.iter_mut().enumerate() {
        let is_known = least[i] == MOST || least[i] == most[i];
        state.plain = if is_known && places[i] <= PLAIN_PLACES { least[i] } else { 0 };
    }
    Ok(())
}

impl Ahead {
    fn of(states: &[FlatState], state: u32) -> Ahead {
        let FlatState { is_final, ref edges, .. } = states[state as usize];
        let takes = |byte: u8| edges.iter().any(|edge| edge.low <= byte && byte <= edge.high);
        // Most states take a character or two: what comes behind them does not matter.
        if !(is_final || takes(b'~') && takes(0xf1)) {
            let is_partial = edges.iter().any(|edge| edge.high != b'"' && edge.high != b'\\');
            return Ahead { after: Vec::new(), is_complete: false, is_partial };
        }
        let mut ahead = Ahead { after: Vec::new(), is_complete: true, is_partial: true };
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
            self.add(match pushed {
                _ if !is_final || !edges.is_empty() => After::State(state, pushed),
                Some(back) => After::State(back, None),
                None => After::Over,
            });
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
/// numbers of which each is one more than the least one that a character leads to.
fn chars_at_least(
    states: &[FlatState],
    ahead: &[Ahead],
    fuel: &mut Fuel,
) -> Result<Vec<u8>, GrammarError> {
    let complete = |ahead: &Ahead| if ahead.is_complete { MOST } else { 0 };
    let mut chars: Vec<u8> = ahead.iter().map(complete).collect();
    // The least that may follow where a state's rule returns to; the answer's rule does not.
    let mut behind = vec![MOST; states.len()];
    behind[0] = 0;
    let mut changed = true;
    while changed {
        changed = false;
        for_each_return(states, fuel, |from, to, back| {
            let least = back.map_or(behind[from], |back| chars[back]);
            changed |= lower(&mut behind[to], least);
        })?;
        // What a state leads to mostly comes later.
        for i in (0..states.len()).rev() {
            let least = ahead[i].after.iter().map(|after| match *after {
                After::State(to, _) => one_more(chars[to as usize]),
                After::Return => behind[i],
                After::Over => one_more(behind[i]),
                After::Unknown => 0,
            });
            let least = least.min().unwrap_or(0);
            changed |= lower(&mut chars[i], least);
        }
    }
    Ok(chars)
}

/// A bound on the plain characters that may follow each state, where any of `least` may;
/// [`PLAIN_CHARS`] includes more.
fn chars_at_most(
    states: &[FlatState],
    ahead: &[Ahead],
    least: &[u8],
    fuel: &mut Fuel,
) -> Result<Vec<u8>, GrammarError> {
    // What takes some characters only is not worth a closer look.
    let first = |(&least, ahead): (&u8, &Ahead)| match ahead.is_complete || !ahead.is_partial {
        true => least,
        false => MOST,
    };
    let mut chars: Vec<u8> = least.iter().zip(ahead).map(first).collect();
    let mut behind = vec![0_u8; states.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for_each_return(states, fuel, |from, to, back| {
            let most = back.map_or(behind[from], |back| chars[back]);
            changed |= raise(&mut behind[to], most);
        })?;
        for i in (0..states.len()).rev() {
            let most = ahead[i].after.iter().map(|after| match *after {
                After::State(to, _) => one_more(chars[to as usize]),
                After::Return => behind[i],
                After::Over => one_more(behind[i]),
                After::Unknown => MOST,
            });
            let most = most.max().unwrap_or(0);
            changed |= raise(&mut chars[i], most);
        }
    }
    Ok(chars)
}

/// Calls `f(from, to, back)` for each step between states, in their order: the rule of `to` returns
/// to `back`, or else to what the rule of `from` returns to.
fn for_each_return(
    states: &[FlatState],
    fuel: &mut Fuel,
    mut f: impl FnMut(usize, usize, Option<usize>),
) -> Result<(), GrammarError> {
    for (from, state) in states.iter().enumerate() {
        fuel.burn(1 + state.edges.len() / 4)?;
        for edge in &state.edges {
            let back = edge.push.map(|back| back as usize);
            f(from, edge.target as usize, back);
            // Where it returns to is in the rule of the call.
            if let Some(back) = back {
                f(from, back, None);
            }
        }
    }
    Ok(())
}

fn one_more(chars: u8) -> u8 {
    (chars + 1).min(MOST)
}
/// Lowers a number to another; whether it was above.
fn lower<N: Copy + Ord>(number: &mut N, to: N) -> bool {
    let old = *number;
    *number = to.min(old);
    old > to
}
/// Raises a number to another; whether it was below.
fn raise<N: Copy + Ord>(number: &mut N, to: N) -> bool {
    let old = *number;
    *number = to.max(old);
    old < to
}

/// Places of the stack that must be free for plain characters from each state on: what they push,
/// and what the ways out need meanwhile. The least numbers that hold, up to one beyond
/// [`PLAIN_PLACES`].
fn places_ahead(
    states: &[FlatState],
    ahead: &[Ahead],
    fuel: &mut Fuel,
) -> Result<Vec<u32>, GrammarError> {
    // Until the rule of a state is over.
    let mut within = vec![0_u32; states.len()];
    let mut changed = true;
    while changed {
        changed = false;
        fuel.burn(states.len())?;
        for i in (0..states.len()).rev() {
            let at = |state: u32| within[state as usize].max(states[state as usize].need);
            let most = ahead[i].after.iter().map(|after| match *after {
                After::State(to, None) => at(to),
                After::State(to, Some(back)) => (at(to) + 1).max(at(back)),
                After::Return | After::Over => 0,
                After::Unknown => PLAIN_PLACES + 1,
            });
            let most = most.max().unwrap_or(0).min(PLAIN_PLACES + 1);
            changed |= raise(&mut within[i], most);
        }
    }
    // From where it returns to, on a stack that is lower by one.
    let mut behind = vec![0_u32; states.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for_each_return(states, fuel, |from, to, back| {
            let most =
                back.map_or(behind[from], |back| within[back].max(behind[back]).saturating_sub(1));
            changed |= raise(&mut behind[to], most);
        })?;
    }
    Ok(within.iter().zip(&behind).map(|(within, behind)| *within.max(behind)).collect())
}
