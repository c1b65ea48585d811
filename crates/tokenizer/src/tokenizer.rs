//! The tokenizer: what callers see.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::added::{AddedTokens, Part};
use crate::bpe::{Bpe, Scratch};
use crate::cache::{MIN_TEXT_BYTES, PromptCache, Scope};
use crate::decode::{Detokenizer, Pieces};
use crate::encode::{Encoder, Place};
use crate::load::{self, AddedToken, Cut, Ends, LoadError, Ranks, Spec};
use crate::offsets::Trim;
use crate::simd::Level;
use crate::{normalize, spaces};

/// A byte-pair-encoding tokenizer with its whole pipeline. Immutable: share it between threads.
pub struct Tokenizer {
    pub(crate) encoder: Encoder,
    pub(crate) nfc: bool,
    /// Found in the text as it comes, and in the normalized text.
    pub(crate) raw: AddedTokens,
    pub(crate) normalized: AddedTokens,
    /// Of offsets only.
    pub(crate) trim: Option<Trim>,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    pieces: Pieces,
    added: Vec<AddedToken>,
    /// Which one of this process.
    key: u64,
}

/// Room of one thread for one tokenizer.
#[derive(Default)]
struct Room {
    scratch: Scratch,
    text: String,
}

thread_local! {
    /// Rooms of the tokenizers that this thread used last.
    static ROOMS: RefCell<Vec<(u64, Box<Room>)>> = const { RefCell::new(Vec::new()) };
}

/// What a tokenizer takes, in bytes. Automata of added tokens are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Once per vocabulary.
    pub shared: usize,
    /// Once per vocabulary and thread that encodes.
    pub per_thread: usize,
}

/// How [`Tokenizer::encode_with`] goes about a text. The tokens are always the same.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// With what the post-processor puts around the text.
    pub add_special: bool,
    /// Most threads for it, the calling one among them.
    pub threads: NonZeroUsize,
    /// Where tokens of long texts are cached, and the salt: a text is found only under the salt
    /// that it was cached with.
    pub cache: Option<(&'a PromptCache, u64)>,
}

impl Default for Options<'_> {
    /// No special tokens, one thread, no cache.
    fn default() -> Self {
        Self { add_special: false, threads: NonZeroUsize::MIN, cache: None }
    }
}

/// Most rooms of a thread.
const MAX_ROOMS: usize = 4;

/// Bytes of a buffer that a thread keeps after a long text.
const KEPT_BUFFER: usize = 1 << 20;

/// Room for the tokens of a text of `bytes` bytes that nearly always suffices: English has 4 to 5
/// bytes per token, Chinese 2 to 4; what is appended together needs some more.
pub(crate) fn likely_tokens(bytes: usize) -> usize {
    bytes / 2 + 128
}

impl Tokenizer {
    /// Reads a tokenizer.json file.
    ///
    /// # Errors
    /// If it cannot be read, is broken, or asks for something that is not supported: then
    /// [`LoadError::Unsupported`] names it, and another tokenizer must be used.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let io = |source| LoadError::Io { path: path.display().to_string(), source };
        Self::from_json(&std::fs::read_to_string(path).map_err(io)?)
    }

    /// Reads the text of a tokenizer.json.
    ///
    /// # Errors
    /// As [`Tokenizer::from_file`].
    pub fn from_json(text: &str) -> Result<Self, LoadError> {
        Self::new(load::from_json(text)?)
    }

    /// Takes a vocabulary in tiktoken's form.
    ///
    /// # Errors
    /// If a single byte has no token, or the vocabulary is too large.
    pub fn from_ranks(ranks: Ranks) -> Result<Self, LoadError> {
        Self::new(load::from_ranks(ranks)?)
    }

    fn new(spec: Spec) -> Result<Self, LoadError> {
        static NEXT_KEY: AtomicU64 = AtomicU64::new(0);
        let pieces = Pieces::new(&spec);
        let automaton = |normalized: bool| {
            let tokens = spec.added.iter().filter(|t| t.normalized == normalized);
            let set = AddedTokens::new(tokens.cloned().collect());
            set.map_err(|e| load::unsupported("added_tokens", e.to_string()))
        };
        Ok(Self {
            raw: automaton(false)?,
            normalized: automaton(true)?,
            encoder: Encoder {
                bpe: Bpe::new(&spec.vocabulary)?,
                cut: spec.cut,
                level: Level::best(),
            },
            nfc: spec.nfc,
            trim: spec.trim,
            prefix: spec.prefix,
            suffix: spec.suffix,
            pieces,
            added: spec.added,
            // SYNC: none needed; only distinct values matter.
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The same with other instructions, for tests and comparisons; `level` must be one of
    /// [`Level::available`], else nothing changes.
    pub fn with_level(mut self, level: Level) -> Self {
        if Level::available().contains(&level) {
            self.encoder.level = level;
        }
        self
    }

    /// The ids of `text`; `add_special`: with what the post-processor puts around it.
    pub fn encode(&self, text: &str, add_special: bool) -> Vec<u32> {
        let mut ids = Vec::with_capacity(likely_tokens(text.len()));
        self.encode_into(text, add_special, &mut ids);
        ids
    }

    /// Appends the ids of `text` to `ids`. Allocates nothing but the growth of `ids`, once the
    /// thread is warm.
    pub fn encode_into(&self, text: &str, add_special: bool, ids: &mut Vec<u32>) {
        self.push_prefix(add_special, ids);
        self.encode_part_of(text, 0, text.len(), ids);
        self.push_suffix(add_special, ids);
    }

    /// The ids of a text that follows other text: without what the post-processor puts around one,
    /// or a space before it.
    pub fn encode_continued(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(likely_tokens(text.len()));
        self.encode_at(text, Place::Continued, &mut ids);
        ids
    }

    /// As [`Tokenizer::encode`], with the tokens of long texts between added tokens from a cache,
    /// and very long texts in several threads, as [`Tokenizer::encode_parallel`].
    pub fn encode_with(&self, text: &str, options: Options<'_>) -> Vec<u32> {
        let Some((cache, salt)) = options.cache else {
            return self.encode_parallel(text, options.add_special, options.threads);
        };
        let mut ids = Vec::with_capacity(likely_tokens(text.len()));
        self.push_prefix(options.add_special, &mut ids);
        self.raw.split(text, |part| match part {
            Part::Token(id, ..) => ids.push(id),
            Part::Text(start, end) => {
                let (text, place) = (&text[start..end], Place::Start.at(start));
                let encode = |ids: &mut Vec<u32>| {
                    self.in_threads(text, options.threads, ids, |start, end, ids| {
                        let place = if start == 0 { place } else { Place::Continued };
                        self.with_room(|room| {
                            self.encode_part(&text[start..end], place, room, ids);
                        });
                    });
                };
                if text.len() < MIN_TEXT_BYTES {
                    return encode(&mut ids);
                }
                let scope = Scope { tokenizer: self.key, salt, is_start: start == 0 };
                cache.encode(scope, text, &mut ids, encode);
            }
        });
        self.push_suffix(options.add_special, &mut ids);
        ids
    }

    /// As [`Tokenizer::encode`], but a special token that has one of `breaks` (sorted offsets)
    /// inside is text like any other.
    pub fn encode_broken(&self, text: &str, breaks: &[usize], add_special: bool) -> Vec<u32> {
        let mut ids = Vec::with_capacity(likely_tokens(text.len()));
        self.push_prefix(add_special, &mut ids);
        self.with_room(|room| {
            self.raw.split_unless_broken(text, breaks, |part| match part {
                Part::Token(id, ..) => ids.push(id),
                Part::Text(start, end) => {
                    self.encode_part(&text[start..end], Place::Start.at(start), room, &mut ids);
                }
            });
        });
        self.push_suffix(add_special, &mut ids);
        ids
    }

    /// Where special tokens are written in `text`. `None` if some of them are found only after
    /// normalization, and so cannot be told by their texts.
    pub fn specials_in(&self, text: &str) -> Option<Vec<Range<usize>>> {
        let told = !self.added.iter().any(|token| token.special && token.normalized);
        told.then(|| self.raw.specials(text).collect())
    }

    pub(crate) fn push_prefix(&self, add_special: bool, ids: &mut Vec<u32>) {
        ids.extend_from_slice(if add_special { &self.prefix } else { &[] });
    }

    pub(crate) fn push_suffix(&self, add_special: bool, ids: &mut Vec<u32>) {
        ids.extend_from_slice(if add_special { &self.suffix } else { &[] });
    }

    /// Whether a text can be cut at [`crate::parallel::cuts`]: pieces end there, and no added
    /// token begins, ends or continues there.
    pub(crate) fn can_be_cut(&self) -> bool {
        let is_inside = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphabetic() || c == ' ');
        let can_cross = |token: &AddedToken| {
            let (first, last) = (token.content.chars().next(), token.content.chars().next_back());
            let spans =
                token.content.as_bytes().windows(3).any(|w| {
                    w[0].is_ascii_lowercase() && w[1] == b' ' && w[2].is_ascii_alphabetic()
                });
            is_inside(first) || is_inside(last) || spans
        };
        let never = matches!(self.encoder.cut, Cut::Spaces { ends: Ends::Never, .. });
        !never && !self.added.iter().any(can_cross)
    }

    /// Appends the ids of `text[start..end]` as a part of `text`.
    pub(crate) fn encode_part_of(&self, text: &str, start: usize, end: usize, ids: &mut Vec<u32>) {
        let place = if start == 0 { Place::Start } else { Place::Continued };
        self.encode_at(&text[start..end], place, ids);
    }

    fn encode_at(&self, text: &str, place: Place, ids: &mut Vec<u32>) {
        self.with_room(|room| {
            self.raw.split(text, |part| match part {
                Part::Token(id, ..) => ids.push(id),
                Part::Text(start, end) => {
                    self.encode_part(&text[start..end], place.at(start), room, ids);
                }
            });
        });
    }

    /// A text between the added tokens of the first kind.
    fn encode_part(&self, text: &str, place: Place, room: &mut Room, ids: &mut Vec<u32>) {
        if self.nfc && !normalize::is_nfc(text) {
            let mut normal = std::mem::take(&mut room.text);
            normal.clear();
            normalize::push_nfc(text, &mut normal);
            self.encode_normal(&normal, place, room, ids);
            normal.shrink_to(KEPT_BUFFER);
            room.text = normal;
        } else {
            self.encode_normal(text, place, room, ids);
        }
    }

    fn encode_normal(&self, text: &str, place: Place, room: &mut Room, ids: &mut Vec<u32>) {
        if self.normalized.is_empty() {
            return self.encode_pieces(text, place, room, ids);
        }
        self.normalized.split(text, |part| match part {
            Part::Token(id, ..) => ids.push(id),
            Part::Text(start, end) => {
                self.encode_pieces(&text[start..end], place.at(start), room, ids);
            }
        });
    }

    /// A text between added tokens.
    fn encode_pieces(&self, text: &str, place: Place, room: &mut Room, ids: &mut Vec<u32>) {
        let has_marks = matches!(self.encoder.cut, Cut::Spaces { .. }) && text.contains('\u{2581}');
        let mut copy = String::new();
        if has_marks {
            spaces::push_spaces(text, &mut copy);
        }
        let text = if has_marks { &copy } else { text };
        if self.encoder.wants_space(text, place) {
            let spaced = format!(" {text}");
            self.encoder.encode(&spaced, &mut room.scratch, ids);
        } else {
            self.encoder.encode(text, &mut room.scratch, ids);
        }
    }

    pub(crate) fn with_scratch<R>(&self, run: impl FnOnce(&mut Scratch) -> R) -> R {
        self.with_room(|room| run(&mut room.scratch))
    }

    fn with_room<R>(&self, run: impl FnOnce(&mut Room) -> R) -> R {
        let mut room = ROOMS.with_borrow_mut(|rooms| {
            let known = rooms.iter().position(|(key, _)| *key == self.key);
            known.map_or_else(Box::default, |at| rooms.swap_remove(at).1)
        });
        let result = run(&mut room);
        ROOMS.with_borrow_mut(|rooms| {
            if rooms.len() >= MAX_ROOMS {
                rooms.remove(0);
            }
            rooms.push((self.key, room));
        });
        result
    }

    /// The text of `ids`. `skip_special`: special tokens leave no text.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = Detokenizer::at_start(&self.pieces, skip_special);
        let mut text = String::with_capacity(ids.len() * 4);
        ids.iter().for_each(|&id| stream.push(&self.pieces, id, &mut text));
        stream.finish(&mut text);
        text
    }

    /// What each token adds to a text.
    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Bytes of memory of all tables, and of what each thread that encodes keeps.
    pub fn memory(&self) -> Memory {
        let shared = self.encoder.bpe.memory() + self.pieces.memory();
        Memory { shared, per_thread: Scratch::default().bytes() }
    }

    /// The id of an added token by its text.
    pub fn added_id(&self, content: &str) -> Option<u32> {
        self.added.iter().find(|t| t.content == content).map(|t| t.id)
    }
}
