//! Flags of prompts that mean the same in every command that sends a load.

use saccade_load::Workload;

/// What prompts of a workload look like, wherever they come from.
#[derive(Debug, Clone, clap::Args)]
pub struct PromptFlags {
    /// Leave out prompts from files that are longer than this, at four bytes per token
    #[arg(long, value_name = "N")]
    max_prompt_tokens: Option<u32>,
    /// Send generated prompts as token ids below N: exact lengths without a tokenizer
    #[arg(long, value_name = "N")]
    vocab: Option<u32>,
}

impl PromptFlags {
    /// The workload with these prompts.
    #[must_use]
    pub fn of(&self, workload: Workload) -> Workload {
        let workload = Workload { max_prompt_tokens: self.max_prompt_tokens, ..workload };
        match self.vocab {
            Some(vocab) => workload.with_ids(vocab),
            None => workload,
        }
    }
}
