//! Grammars of requests: compiled once, on the threads for long texts, and kept by content.
//!
//! On a full host even a thread of low priority gets a core at times, and then a step of the CPU
//! device waits for it. So a tenant whose grammars took more than their part of the processors has
//! the next ones compiled in the time that nothing else wants, and so has every tenant those that
//! take more than [`GRAMMAR_STEPS`].

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use saccade_grammar::{
    Automaton, Bound, GrammarError, Limits, Source, TokenOrder, Writer, compile_for,
};
use saccade_ring::DeviceInfo;

use super::Serving;
use super::model::ModelAssets;
use crate::FrontendConfig;
use crate::api_error::ApiError;
use crate::limits::{GRAMMAR_STEPS, MAX_GRAMMAR_BYTES, MAX_KEPT_GRAMMARS};
use crate::tenants::{Ledger, Tenant};
use crate::text::pool::{Lanes, PoolError};
use crate::validate::AskedGrammar;

/// Grammars that were compiled, the ones used last first, and what they rest on.
pub struct Grammars {
    assets: Arc<ModelAssets>,
    /// Tokens of which a grammar leaves no choice are named with it.
    jump_forward: bool,
    /// That compiling one may take.
    max_steps: u64,
    /// What this frontend writes tokens by.
    tokens: OnceLock<Arc<Tokens>>,
    kept: Mutex<Vec<(Arc<Source>, Automaton)>>,
}

/// The bytes of all tokens of a vocabulary.
struct Tokens {
    order: TokenOrder,
    hash: u64,
}

impl Tokens {
    fn are_those_of(&self, vocab_size: u32, hash: u64) -> bool {
        (self.order.vocabulary().len(), self.hash) == (vocab_size as usize, hash)
    }
}

impl Grammars {
    /// None yet.
    pub fn new(assets: Arc<ModelAssets>, config: &FrontendConfig) -> Self {
        Self {
            assets,
            jump_forward: config.jump_forward,
            max_steps: config.max_grammar_steps,
            tokens: OnceLock::new(),
            kept: Mutex::new(Vec::new()),
        }
    }

    /// The automaton of what a request of `tenant` asks for.
    ///
    /// # Errors
    /// 400 for a grammar that is wrong or not supported, and where the device takes none; 429 if
    /// the lane's queue is full.
    pub async fn automaton(
        &self,
        serving: &Serving,
        tenant: &Tenant,
        device: &DeviceInfo,
        asked: &AskedGrammar,
    ) -> Result<Arc<[u32]>, ApiError> {
        if device.grammar_words == 0 {
            let message = format!("`{}`: this server's device does not support it", asked.param);
            return Err(ApiError { message, ..ApiError::unsupported(asked.param) });
        }
        // A device that was replaced may mean other tokens.
        let (vocab_size, told) = (device.vocab_size, device.vocab_hash);
        let is_known =
            self.tokens.get().is_some_and(|tokens| tokens.are_those_of(vocab_size, told));
        if let Some(kept) = self.find(&asked.source).filter(|_| is_known) {
            return Ok(kept.words().clone());
        }
        let work = Work {
            grammars: serving.grammars.clone(),
            ledger: tenant.ledger().clone(),
            source: Arc::new(asked.source.clone()),
            words: device.grammar_words as usize,
            vocab: (vocab_size, told),
        };
        let compiled = self.compiled(&serving.lanes, &work).await;
        let automaton = compiled.map_err(|refused| refused.told(asked))?;
        // Here: a thread of low priority may not hold what others wait for.
        self.keep(work.source, automaton.clone());
        Ok(automaton.words().clone())
    }

    /// In spare time what takes many steps, or is a tenant's that has had its part of the
    /// processors.
    async fn compiled(&self, lanes: &Lanes, work: &Work) -> Result<Automaton, Refused> {
        if !work.ledger.compiles_in_spare_time(Instant::now()) {
            let steps = self.max_steps.min(GRAMMAR_STEPS);
            let first = work.clone();
            let compiled = lanes.long().run(move || first.compile(steps, Lane::Shared)).await;
            match compiled.map_err(Refused::Pool)? {
                Err(Refused::Grammar(error))
                    if error.is_of(Bound::Steps) && steps < self.max_steps => {}
                compiled => return compiled,
            }
        }
        let (work, steps) = (work.clone(), self.max_steps);
        let compiled = lanes.spare().run(move || work.compile(steps, Lane::Spare)).await;
        compiled.map_err(Refused::Pool)?
    }

    /// The size does not change while a device is the same model's.
    fn tokens_for(&self, vocab_size: u32) -> Arc<Tokens> {
        let of = |size| {
            let vocabulary = self.assets.tokenizer.vocab().token_bytes(size);
            Arc::new(Tokens { hash: vocabulary.hash(), order: TokenOrder::of(vocabulary) })
        };
        let tokens = self.tokens.get_or_init(|| of(vocab_size));
        let same = tokens.order.vocabulary().len() == vocab_size as usize;
        if same { tokens.clone() } else { of(vocab_size) }
    }

    fn find(&self, source: &Source) -> Option<Automaton> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|entry| *entry.0 == *source)?;
        kept[..=at].rotate_right(1);
        Some(kept[0].1.clone())
    }

    fn keep(&self, source: Arc<Source>, automaton: Automaton) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|entry| entry.0 != source);
        kept.truncate(MAX_KEPT_GRAMMARS - 1);
        kept.insert(0, (source, automaton));
    }
}

/// What there is to compile.
#[derive(Clone)]
struct Work {
    grammars: Arc<Grammars>,
    ledger: Arc<Ledger>,
    source: Arc<Source>,
    /// That the device has room for.
    words: usize,
    /// Size and hash of the device's.
    vocab: (u32, u64),
}

/// Whose threads compile it.
#[derive(PartialEq)]
enum Lane {
    /// Those of long texts, which other requests need too.
    Shared,
    Spare,
}

/// Why there is no automaton.
enum Refused {
    Grammar(GrammarError),
    /// The device's are not this frontend's.
    OtherTokens,
    Pool(PoolError),
}

impl Refused {
    fn told(self, asked: &AskedGrammar) -> ApiError {
        match self {
            Refused::Grammar(error) => asked.refused(&error),
            Refused::OtherTokens => {
                let reason = "the device has another tokenizer than this frontend";
                ApiError::invalid(asked.param, format!("`{}`: {reason}", asked.param))
            }
            Refused::Pool(PoolError::Full) => {
                ApiError::overloaded("too many grammars wait to be compiled", 1)
            }
            Refused::Pool(PoolError::Failed) => {
                ApiError::internal("the compiler failed on this grammar")
            }
        }
    }
}

impl Work {
    fn compile(&self, steps: u64, lane: Lane) -> Result<Automaton, Refused> {
        let (vocab_size, hash) = self.vocab;
        let tokens = self.grammars.tokens_for(vocab_size);
        if !tokens.are_those_of(vocab_size, hash) {
            return Err(Refused::OtherTokens);
        }
        let before_us = cpu_us();
        let tokenizer = &self.grammars.assets.tokenizer;
        let encode = |text: &str| tokenizer.encode_continued(text);
        let writer = Writer { tokens: &tokens.order, encode: &encode };
        let writer = self.grammars.jump_forward.then_some(&writer);
        let limits = Limits { source_bytes: MAX_GRAMMAR_BYTES, fuel: steps, words: self.words };
        let compiled = compile_for(&self.source, &limits, writer);
        let us = cpu_us() - before_us;
        self.ledger.compiled_for(us);
        if lane == Lane::Shared {
            self.ledger.charge_grammar(us, Instant::now());
        }
        compiled.map_err(Refused::Grammar)
    }
}

/// Microseconds that the calling thread has run. Waiting for a core is none of them.
fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
