//! What a frontend asks for, its bounds, and its form on the wire.

use bytemuck::Zeroable;

use crate::device::DeviceInfo;
use crate::layout::*;

/// Parameters of one request; the defaults are those of the OpenAI API.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestParams {
    /// End-of-sequence ids of the model do not stop it.
    pub ignore_eos: bool,
    /// Logprob of each produced token.
    pub logprobs: bool,
    /// Records for prompt tokens 1..n-1 come before the first token.
    pub prompt_logprobs: bool,
    /// Tokens to produce, at least 1; with the prompt at most the model's length. 0 for an
    /// embedding.
    pub max_tokens: u32,
    /// Stop ids are ignored before this many tokens; at most `max_tokens`.
    pub min_tokens: u32,
    /// Alternatives per token, 0 ..= 20; needs one of the logprob flags.
    pub num_top_logprobs: u32,
    /// 0 = greedy; 0 ..= 100.
    pub temperature: f32,
    /// Above 0, at most 1.
    pub top_p: f32,
    /// 0 ..= 1.
    pub min_p: f32,
    /// 0 = all.
    pub top_k: u32,
    /// Above 0, at most 10.
    pub repetition_penalty: f32,
    /// -2 ..= 2.
    pub presence_penalty: f32,
    /// -2 ..= 2.
    pub frequency_penalty: f32,
    /// Lower is earlier; used by the priority policies.
    pub priority: i32,
    /// Key of the counter-based generator.
    pub seed: u64,
    /// Separates the prefixes of tenants; 0 = shared.
    pub cache_salt: u64,
    /// Target of the time to the first token in seconds; 0 = the server's default.
    pub slo_ttft_s: f32,
    /// Target of the time between tokens in seconds; 0 = the server's default.
    pub slo_tbt_s: f32,
    /// Who shares the device with others; below `SAC_MAX_TENANTS`.
    pub tenant: u32,
    /// Of its share; at most `SAC_MAX_TENANT_WEIGHT`, 0 counts as 1.
    pub tenant_weight: u32,
    /// The answer is the prompt's embedding, of this many values: what the device gives. 0: the
    /// answer is tokens.
    pub embedding_size: u32,
    /// The model with this adapter, 1 ..= what the device has; 0: as it is.
    pub adapter: u32,
}

impl Default for RequestParams {
    fn default() -> RequestParams {
        RequestParams {
            ignore_eos: false,
            logprobs: false,
            prompt_logprobs: false,
            max_tokens: 16,
            min_tokens: 0,
            num_top_logprobs: 0,
            temperature: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            top_k: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            priority: 0,
            seed: 0,
            cache_salt: 0,
            slo_ttft_s: 0.0,
            slo_tbt_s: 0.0,
            tenant: 0,
            tenant_weight: 1,
            embedding_size: 0,
            adapter: 0,
        }
    }
}

impl RequestParams {
    /// What asks for an embedding of this many values.
    #[must_use]
    pub fn embedding(embedding_size: u32) -> RequestParams {
        RequestParams { max_tokens: 0, embedding_size, ..RequestParams::default() }
    }

    /// Words of one record.
    pub(crate) fn stride(&self) -> u32 {
        match self.embedding_size {
            0 => sac_record_stride(self.flags(), self.num_top_logprobs),
            size => sac_embedding_words(size),
        }
    }

    pub(crate) fn flags(&self) -> u32 {
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        flag(self.ignore_eos, SAC_REQ_IGNORE_EOS)
            | flag(self.logprobs, SAC_REQ_LOGPROBS)
            | flag(self.prompt_logprobs, SAC_REQ_PROMPT_LOGPROBS)
            | flag(self.embedding_size != 0, SAC_REQ_EMBED)
    }
}

/// One request as it goes to the device.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// Token ids, 1 .. `max_model_len`; one more for an embedding.
    pub prompt: &'a [u32],
    /// Pairs of token id and bias, at most 1024.
    pub logit_bias: &'a [(u32, f32)],
    /// Token ids that end the request, at most 128.
    pub stop_ids: &'a [u32],
    /// The automaton that the answer obeys (`abi/wire.h`); empty: none.
    pub grammar: &'a [u32],
    /// Everything else.
    pub params: RequestParams,
}

impl Submission<'_> {
    /// Bytes of the arena extent.
    pub(crate) fn extent_bytes(&self) -> u64 {
        4 * self.prompt.len() as u64
            + 8 * self.logit_bias.len() as u64
            + 4 * self.stop_ids.len() as u64
            + 4 * self.grammar.len() as u64
    }

    /// Bytes that it takes of the input arena while it waits.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.extent_bytes().max(1).next_multiple_of(SAC_ARENA_ALIGN_BYTES.into())
    }

    /// Most records that the request can yield.
    #[must_use]
    pub fn max_records(&self) -> u32 {
        if self.params.embedding_size != 0 {
            return 1;
        }
        let prompt = if self.params.prompt_logprobs {
            (self.prompt.len() as u32).saturating_sub(1)
        } else {
            0
        };
        prompt.saturating_add(self.params.max_tokens)
    }

    /// Checks every bound of the wire against a ready device.
    ///
    /// # Errors
    /// A sentence that names the field, its value and its bound.
    pub fn validate(&self, device: &DeviceInfo) -> Result<(), String> {
        self.validate_lengths(device)?;
        self.validate_embedding(device)?;
        self.validate_sampling(device)?;
        self.validate_ids(device.vocab_size)
    }

    fn validate_lengths(&self, device: &DeviceInfo) -> Result<(), String> {
        let (params, model_len) = (&self.params, u64::from(device.max_model_len));
        let prompt_len = self.prompt.len() as u64;
        // Of an embedding the prompt is all.
        let next = u64::from(params.embedding_size == 0);
        // A device may say that its model takes nothing.
        let most = model_len.saturating_sub(next);
        if prompt_len == 0 || prompt_len > most {
            return Err(format!("prompt: {prompt_len} tokens, must be 1 ..= {most}"));
        }
        let none = params.max_tokens == 0 && params.embedding_size == 0;
        if none || prompt_len + u64::from(params.max_tokens) > model_len {
            return Err(format!(
                "max_tokens: {} after {prompt_len} prompt tokens, must be 1 ..= {}",
                params.max_tokens,
                model_len - prompt_len
            ));
        }
        at_most("min_tokens", params.min_tokens, params.max_tokens)?;
        at_most("logit_bias pairs", self.logit_bias.len(), SAC_MAX_LOGIT_BIAS as usize)?;
        at_most("stop_ids", self.stop_ids.len(), SAC_MAX_STOP_IDS as usize)?;
        at_most("grammar words", self.grammar.len(), device.grammar_words as usize)
    }

    /// An embedding is the device's, and nothing is asked for that is for tokens.
    fn validate_embedding(&self, device: &DeviceInfo) -> Result<(), String> {
        let params = &self.params;
        if params.embedding_size == 0 {
            return Ok(());
        }
        if params.embedding_size != device.embedding_size {
            return Err(format!(
                "embedding_size: {}, must be {}, which the device gives",
                params.embedding_size, device.embedding_size
            ));
        }
        if params.flags() != SAC_REQ_EMBED {
            return Err("an embedding: takes no flag that is for tokens".into());
        }
        at_most("max_tokens of an embedding", params.max_tokens, 0)?;
        at_most("logit_bias pairs of an embedding", self.logit_bias.len(), 0)?;
        at_most("stop_ids of an embedding", self.stop_ids.len(), 0)?;
        at_most("grammar words of an embedding", self.grammar.len(), 0)
    }

    fn validate_sampling(&self, device: &DeviceInfo) -> Result<(), String> {
        let params = &self.params;
        let most_top = SAC_MAX_TOP_LOGPROBS.min(device.vocab_size);
        at_most("num_top_logprobs", params.num_top_logprobs, most_top)?;
        at_most("tenant", params.tenant, SAC_MAX_TENANTS - 1)?;
        at_most("tenant_weight", params.tenant_weight, SAC_MAX_TENANT_WEIGHT)?;
        at_most("adapter", params.adapter, device.num_adapters)?;
        if params.num_top_logprobs > 0 && !(params.logprobs || params.prompt_logprobs) {
            return Err("num_top_logprobs: needs logprobs or prompt_logprobs".into());
        }
        in_range("temperature", params.temperature, 0.0, 100.0)?;
        in_range("top_p", params.top_p, f32::MIN_POSITIVE, 1.0)?;
        in_range("min_p", params.min_p, 0.0, 1.0)?;
        in_range("repetition_penalty", params.repetition_penalty, f32::MIN_POSITIVE, 10.0)?;
        in_range("presence_penalty", params.presence_penalty, -2.0, 2.0)?;
        in_range("frequency_penalty", params.frequency_penalty, -2.0, 2.0)?;
        in_range("slo_ttft_s", params.slo_ttft_s, 0.0, f32::MAX)?;
        in_range("slo_tbt_s", params.slo_tbt_s, 0.0, f32::MAX)
    }

    fn validate_ids(&self, vocab_size: u32) -> Result<(), String> {
        let check = |field: &str, id: u32| {
            if id < vocab_size {
                return Ok(());
            }
            Err(format!("{field}: token id {id}, must be below the vocabulary size {vocab_size}"))
        };
        self.prompt.iter().try_for_each(|&id| check("prompt", id))?;
        self.stop_ids.iter().try_for_each(|&id| check("stop_ids", id))?;
        self.logit_bias.iter().try_for_each(|&(id, bias)| {
            in_range("logit_bias", bias, f32::MIN, f32::MAX)?;
            check("logit_bias", id)
        })
    }

    /// The descriptor of a validated submission.
    pub(crate) fn descriptor(
        &self,
        sequence: u64,
        arena_extent: u64,
        device_epoch: u32,
    ) -> Descriptor {
        let params = &self.params;
        Descriptor {
            sequence,
            arena_extent,
            device_epoch,
            flags: params.flags(),
            prompt_len: self.prompt.len() as u32,
            max_tokens: params.max_tokens,
            min_tokens: params.min_tokens,
            num_logit_bias: self.logit_bias.len() as u32,
            num_stop_ids: self.stop_ids.len() as u32,
            num_top_logprobs: params.num_top_logprobs,
            temperature: params.temperature,
            top_p: params.top_p,
            min_p: params.min_p,
            top_k: params.top_k,
            repetition_penalty: params.repetition_penalty,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            priority: params.priority,
            seed: params.seed,
            cache_salt: params.cache_salt,
            slo_ttft_s: params.slo_ttft_s,
            slo_tbt_s: params.slo_tbt_s,
            tenant: params.tenant,
            tenant_weight: params.tenant_weight,
            grammar_words: self.grammar.len() as u32,
            adapter: params.adapter,
            ..Descriptor::zeroed()
        }
    }
}

fn at_most<N: PartialOrd + std::fmt::Display>(
    field: &str,
    value: N,
    most: N,
) -> Result<(), String> {
    if value <= most { Ok(()) } else { Err(format!("{field}: {value}, must be at most {most}")) }
}

/// NaN is outside every range.
fn in_range(field: &str, value: f32, least: f32, most: f32) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{field}: {value}, must be {least} ..= {most}"))
}

/// Names one request in flight. A slot's tickets count modulo 2^24, so a ticket is reused only
/// after 16 million others of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// Slot of the region.
    pub slot: u32,
    /// Generation of the slot.
    pub ticket: u32,
    /// Life of the device that it was submitted to.
    pub device_epoch: u32,
}

/// Why a request ended, when the device ended it. (A request of an earlier life of the device ends
/// as lost instead.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// An end-of-sequence or stop token id; that token is the last record.
    Stop,
    /// `max_tokens`, or the model's length limit.
    Length,
    /// The frontend cancelled it, or was declared dead.
    Cancelled,
    /// The device found a bound violated; nothing was run.
    Invalid,
    /// The step failed for this request.
    Error,
}

/// One produced token (or one prompt token, for prompt logprobs).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// Token id, below the vocabulary size.
    pub token: u32,
    /// Its logprob; 0 unless logprobs were asked for.
    pub logprob: f32,
    /// The alternatives that were asked for, best first: token id and logprob.
    pub top: &'a [(u32, f32)],
}

/// Why a submission was refused. None of these leaves anything behind.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum SubmitError {
    /// No living device in phase READY, or it has not yet acknowledged this frontend.
    #[error("the device is not ready")]
    DeviceNotReady,
    /// Every slot of this frontend is in use.
    #[error("all slots are in use")]
    SlotsFull,
    /// The arena has no room for this prompt now.
    #[error("the input arena is full")]
    ArenaFull,
    /// A field is out of bounds.
    #[error("{0}")]
    Invalid(String),
}
