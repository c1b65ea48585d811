//! Grammars of requests: compiled once, on the threads for long texts, and kept by content.
//!
//! On a full host even a thread of low priority gets a core at times, and then a step of the CPU
//! device waits for it. So a tenant whose grammars took more than their part of the processors has
//! the next ones compiled in the time that nothing else wants.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use saccade_grammar::{Limits, Source, TokenOrder, Writer, compile_for};
use saccade_ring::DeviceInfo;

use super::Serving;
use super::model::ModelAssets;
use super::prepare::pool_error;
use crate::api_error::ApiError;
use crate::limits::{MAX_GRAMMAR_BYTES, MAX_KEPT_GRAMMARS};
use crate::tenants::Tenant;
use crate::validate::AskedGrammar;

/// Grammars that were compiled, the ones used last first, and what they rest on.
pub struct Grammars {
    assets: Arc<ModelAssets>,
    /// Tokens of which a grammar leaves no choice are named with it.
    jump_forward: bool,
    /// What this frontend writes tokens by.
    tokens: OnceLock<Arc<Tokens>>,
    kept: Mutex<Vec<(Source, Arc<[u32]>)>>,
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
    /// None yet. `jump_forward`: not all tokens of an answer are drawn, see
    /// [`FrontendConfig::jump_forward`](crate::FrontendConfig::jump_forward).
    pub fn new(assets: Arc<ModelAssets>, jump_forward: bool) -> Self {
        Self { assets, jump_forward, tokens: OnceLock::new(), kept: Mutex::new(Vec::new()) }
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
        if let Some(words) = self.find(&asked.source).filter(|_| is_known) {
            return Ok(words);
        }
        let limits = Limits {
            source_bytes: MAX_GRAMMAR_BYTES,
            words: device.grammar_words as usize,
            ..Limits::default()
        };
        let (grammars, source) = (serving.grammars.clone(), asked.source.clone());
        let ledger = tenant.ledger().clone();
        let lane = match ledger.compiles_in_spare_time(Instant::now()) {
            true => serving.lanes.spare(),
            false => serving.lanes.long(),
        };
        let job = move || {
            let tokens = grammars.tokens_for(vocab_size);
            if !tokens.are_those_of(vocab_size, told) {
                return Err(None);
            }
            let before_us = cpu_us();
            let encode = |text: &str| grammars.assets.tokenizer.encode_continued(text);
            let writer = Writer { tokens: &tokens.order, encode: &encode };
            let compiled = compile_for(&source, &limits, grammars.jump_forward.then_some(&writer));
            ledger.compiled_for(cpu_us() - before_us, Instant::now());
            Ok((source, compiled.map_err(Some)?))
        };
        match lane.run(job).await.map_err(pool_error)? {
            Ok((source, automaton)) => {
                // Here: a thread of low priority may not hold what others wait for.
                self.keep(source, automaton.words());
                Ok(automaton.words().clone())
            }
            Err(Some(error)) => Err(asked.refused(&error)),
            Err(None) => {
                let reason = "the device has another tokenizer than this frontend";
                Err(ApiError::invalid(asked.param, format!("`{}`: {reason}", asked.param)))
            }
        }
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

    fn find(&self, source: &Source) -> Option<Arc<[u32]>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|entry| entry.0 == *source)?;
        kept[..=at].rotate_right(1);
        Some(kept[0].1.clone())
    }

    fn keep(&self, source: Source, words: &Arc<[u32]>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|entry| entry.0 != source);
        kept.truncate(MAX_KEPT_GRAMMARS - 1);
        kept.insert(0, (source, words.clone()));
    }
}

/// Microseconds that the calling thread has run. Waiting for a core is none of them.
fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
