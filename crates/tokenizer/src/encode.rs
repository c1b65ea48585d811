//! A text between added tokens to ids: the splitter of the vocabulary, compiled for the
//! instruction set of the machine.

use crate::bpe::{Bpe, Scratch};
use crate::load::{Cut, Prepend};
use crate::simd::{Isa, Level, Scalar};
use crate::spaces;
use crate::split::{Cased, Gpt2, Pattern, Splitter, Words};
use crate::unicode::classes;

/// Where a text between added tokens is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The input begins with it.
    Start,
    /// An added token is before it.
    Inside,
    /// The text before it was cut off, and is encoded elsewhere.
    Continued,
}

impl Place {
    /// Of a part that begins at `offset` of a text at this place.
    pub fn at(self, offset: usize) -> Self {
        if offset == 0 { self } else { Self::Inside }
    }
}

/// Everything between added tokens and ids.
pub struct Encoder {
    /// The vocabulary.
    pub bpe: Bpe,
    /// How texts are cut.
    pub cut: Cut,
    /// Which instructions are used.
    pub level: Level,
}

impl Encoder {
    /// Whether a space belongs before `text`.
    pub fn wants_space(&self, text: &str, place: Place) -> bool {
        let (Cut::Pattern { prepend, .. } | Cut::Spaces { prepend, .. }) = self.cut;
        match prepend {
            Prepend::Never => false,
            Prepend::Always => place != Place::Continued,
            Prepend::IfMissing => place != Place::Continued && !text.starts_with(' '),
            Prepend::IfMissingAtStart => place == Place::Start && !text.starts_with(' '),
        }
    }

    /// Appends the ids of `text`, with all spaces that belong to it.
    pub fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        match self.cut {
            Cut::Spaces { ends, .. } => self.by(spaces::Words { ends }, text, scratch, out),
            Cut::Pattern { pattern, .. } => self.by_pattern(pattern, text, scratch, out),
        }
    }

    fn by_pattern(&self, pattern: Pattern, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let classes = classes();
        match pattern {
            Pattern::Gpt2 => self.by(Gpt2 { classes }, text, scratch, out),
            Pattern::Cl100k => self.by(Words::<3, false> { classes }, text, scratch, out),
            Pattern::Cl100kPossessive => self.by(Words::<3, true> { classes }, text, scratch, out),
            Pattern::Qwen2 => self.by(Words::<1, false> { classes }, text, scratch, out),
            Pattern::O200k => self.by(Cased::<3, true> { classes }, text, scratch, out),
            Pattern::Tekken => self.by(Cased::<1, false> { classes }, text, scratch, out),
        }
    }

    fn by<P: Splitter>(&self, split: P, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        // SAFETY: a level is only made on a machine that has it.
        unsafe {
            match self.level {
                Level::Scalar => self.run::<Scalar, P>(split, text, scratch, out),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => self.run::<crate::simd::Avx2, P>(split, text, scratch, out),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => self.run::<crate::simd::Avx512, P>(split, text, scratch, out),
                #[cfg(target_arch = "aarch64")]
                Level::Neon => self.run::<crate::simd::Neon, P>(split, text, scratch, out),
            }
        }
    }

    /// # Safety
    /// The machine must have `S`.
    unsafe fn run<S: Isa, P: Splitter>(
        &self,
        split: P,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let text = text.as_bytes();
        // SAFETY: the caller's contract.
        unsafe {
            S::vectorize(
                #[inline(always)]
                || {
                    let mut pos = 0;
                    scratch.begin();
                    while pos < text.len() {
                        while pos < text.len() {
                            pos = split.piece_end::<S>(text, pos).min(text.len());
                            if !self.bpe.add::<S>(text, scratch, pos) {
                                break;
                            }
                        }
                        self.bpe.encode::<S>(text, scratch, out);
                    }
                },
            );
        }
    }
}
