//! The one validator: every endpoint reads its fields here, against the one table in [`params`].

pub(crate) mod chat;
mod completions;
mod embeddings;
mod fields;
mod generate;
mod grammar;
mod held;
pub mod params;
mod tokenize;
pub(crate) mod tools;
mod translate;
pub(crate) mod unsupported;

use crate::tenants::Terms;
pub use chat::{ChatInput, ChatRequest, Content, Message};
pub use completions::{CompletionRequest, Prompt};
pub use embeddings::EmbeddingsRequest;
pub(crate) use fields::read_list;
pub use fields::{Fields, cut, read_json};
pub use generate::{GenerateParams, SloHeaders, StreamOptions, first_word, hash_salt};
pub use grammar::AskedGrammar;
pub use tokenize::{DetokenizeRequest, TokenizeInput, TokenizeRequest};
pub use tools::{StrictCalls, ToolChoice, Tools};
pub use translate::ChatFields;

/// A request that the device answers.
pub trait Generating {
    /// The name of the model that it asks for.
    fn model(&self) -> Option<&str>;
    /// What the server adds to.
    fn params_mut(&mut self) -> &mut GenerateParams;
}

/// Limits that the model sets; known once the device is ready.
#[derive(Debug, Clone, Copy)]
pub struct ModelLimits {
    /// Token ids are below this.
    pub vocab_size: u32,
    /// Prompt and produced tokens together.
    pub max_model_len: u32,
    /// Whether the device's policy has classes; otherwise only priority 0 is accepted.
    pub priority: bool,
    /// What the request's tenant may ask for.
    pub terms: Terms,
}
