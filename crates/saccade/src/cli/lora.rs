//! Flags of LoRA adapters, named as vLLM's.

use clap::Args;

/// Adapters that are loaded beside the model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "LoRA adapters")]
pub(crate) struct LoraArgs {
    /// Serve LoRA adapters
    #[arg(long, env = "SACCADE_ENABLE_LORA")]
    pub enable_lora: bool,
    /// Adapters beside the model, each a folder as PEFT writes it
    #[arg(long, value_name = "NAME=PATH", num_args = 1.., value_parser = module, env = "SACCADE_LORA_MODULES")]
    pub lora_modules: Vec<LoraModule>,
    /// Most adapters in memory
    #[arg(long, value_name = "N", env = "SACCADE_MAX_LORAS")]
    pub max_loras: Option<u32>,
    /// Largest rank of an adapter
    #[arg(long, value_name = "RANK", default_value = "16", env = "SACCADE_MAX_LORA_RANK")]
    pub max_lora_rank: u32,
}

/// An adapter, and the name that requests use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoraModule {
    pub name: String,
    pub path: String,
}

fn module(text: &str) -> Result<LoraModule, String> {
    let (name, path) = text.split_once('=').ok_or("must be NAME=PATH")?;
    Ok(LoraModule { name: name.to_owned(), path: path.to_owned() })
}
