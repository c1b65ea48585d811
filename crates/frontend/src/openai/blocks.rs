//! Answers as lists of blocks, for APIs that tell texts, thoughts and calls apart in that way.

use saccade_parsers::Event;

use super::CallIds;
use crate::serving::Delta;

/// The blocks of one answer so far; the last one may go on.
pub struct Blocks {
    ids: CallIds,
    with_reasoning: bool,
    list: Vec<Block>,
    calls: usize,
    last_call_is_whole: bool,
}

/// A part of an answer.
pub enum Block {
    /// What it says.
    Text(String),
    /// What the model thought.
    Reasoning(String),
    /// A function that it calls.
    Call {
        /// Names the call.
        id: String,
        /// The function.
        name: String,
        /// JSON, or the beginning of it.
        arguments: String,
    },
}

/// What a delta does to the blocks.
pub enum Change {
    /// A new block, the last one from here on.
    Begin(Block),
    /// More of the last one.
    More(String),
    /// The last one is a call, and whole.
    CallEnd,
}

/// Which block it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of [`Block::Text`].
    Text,
    /// Of [`Block::Reasoning`].
    Reasoning,
    /// Of [`Block::Call`].
    Call,
}

impl Blocks {
    /// None so far.
    pub fn new(ids: CallIds, with_reasoning: bool) -> Self {
        Self { ids, with_reasoning, list: Vec::new(), calls: 0, last_call_is_whole: false }
    }

    /// What a delta says, in order. The changes are not made: a stream may need no more of a block
    /// than its kind.
    pub fn changes(&mut self, delta: &mut Delta) -> Vec<Change> {
        let text = std::mem::take(&mut delta.text);
        let text = (!text.is_empty()).then_some(Event::Text(text));
        let mut changes = Vec::new();
        // The kind of the block that is open, by what has been said.
        let mut open = self.list.last().map(Block::kind);
        for event in text.into_iter().chain(std::mem::take(&mut delta.parts)) {
            let (kind, more) = match event {
                Event::Text(text) => (Kind::Text, text),
                Event::Reasoning(text) if self.with_reasoning => (Kind::Reasoning, text),
                Event::Reasoning(_) => continue,
                Event::Call(name) => {
                    open = Some(Kind::Call);
                    changes.push(Change::Begin(self.call(name)));
                    continue;
                }
                Event::Arguments(text) => (Kind::Call, text),
                Event::CallEnd => {
                    self.last_call_is_whole = true;
                    changes.push(Change::CallEnd);
                    continue;
                }
            };
            if open != Some(kind) {
                open = Some(kind);
                changes.push(Change::Begin(match kind {
                    Kind::Reasoning => Block::Reasoning(String::new()),
                    _ => Block::Text(String::new()),
                }));
            }
            changes.push(Change::More(more));
        }
        changes
    }

    fn call(&mut self, name: String) -> Block {
        let id = self.ids.id(0, self.calls);
        self.calls += 1;
        self.last_call_is_whole = false;
        Block::Call { id, name, arguments: String::new() }
    }

    /// Makes a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Begin(block) => self.list.push(block),
            Change::More(more) => {
                if let Some(block) = self.list.last_mut() {
                    block.add(&more);
                }
            }
            Change::CallEnd => {}
        }
    }

    /// All of them.
    pub fn list(&self) -> &[Block] {
        &self.list
    }

    /// There are calls, and the last one is whole.
    pub fn calls_are_whole(&self) -> bool {
        self.calls > 0 && self.last_call_is_whole
    }
}

impl Block {
    /// Which one it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Reasoning(_) => Kind::Reasoning,
            Self::Call { .. } => Kind::Call,
        }
    }

    fn add(&mut self, more: &str) {
        match self {
            Self::Text(text) | Self::Reasoning(text) => text.push_str(more),
            Self::Call { arguments, .. } => arguments.push_str(more),
        }
    }
}
