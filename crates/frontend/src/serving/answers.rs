//! How the model's answers are taken apart: which formats it writes, and what a request wants.

use std::sync::Arc;

use saccade_parsers::{ReasoningFormat, Schemas, Settings, ToolFormat};

use crate::api_error::ApiError;
use crate::config::{FrontendConfig, ParserChoice};
use crate::error::FrontendError;
use crate::text::template::ChatTemplate;
use crate::text::vocab::Vocab;
use crate::validate::{ChatInput, ToolChoice};

/// The formats of the served model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnswerFormats {
    tools: Option<ToolFormat>,
    reasoning: Option<ReasoningFormat>,
    /// Special tokens that are markers of either.
    tool_specials: Vec<u32>,
    reasoning_specials: Vec<u32>,
}

/// How one answer is taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerSettings {
    /// What to look for.
    pub parser: Settings,
    /// Special tokens that leave text, because they are markers.
    pub markers: Arc<[u32]>,
}

/// What a chat request wants of its answer.
pub struct AnswerAsk {
    /// The types of the tools' parameters; absent if the model may call none.
    schemas: Option<Arc<Schemas>>,
    one_call: bool,
    /// The text that the answer goes on with, if it goes on with a message.
    begun: Option<String>,
}

impl AnswerAsk {
    /// Reads it from the conversation.
    pub fn of(chat: &ChatInput) -> Self {
        let may_call = chat.tools.choice != ToolChoice::None;
        Self {
            schemas: may_call.then(|| chat.tools.schemas.clone()),
            one_call: !chat.tools.parallel,
            begun: chat.continue_final_message.then(|| chat.last_text()),
        }
    }
}

impl AnswerFormats {
    /// The formats that the configuration names, or the template tells.
    ///
    /// # Errors
    /// If there is none for tool calls and the configuration insists on one.
    pub fn of(
        config: &FrontendConfig,
        template: Option<&ChatTemplate>,
        vocab: &Vocab,
    ) -> Result<Self, FrontendError> {
        let source = template.map(ChatTemplate::source).unwrap_or_default();
        let tools = chosen(config.tool_call_parser, || ToolFormat::of_template(&source));
        let reasoning = chosen(config.reasoning_parser, || ReasoningFormat::of_template(&source));
        if config.require_tool_calls && tools.is_none() {
            return Err(FrontendError::Config {
                field: "enable_auto_tool_choice",
                reason: "the chat template tells no known format of tool calls; name it with \
                         --tool-call-parser"
                    .into(),
            });
        }
        let specials = |markers: Vec<&str>| vocab.specials_named(&markers);
        let formats = Self {
            tools,
            reasoning,
            tool_specials: specials(tools.into_iter().flat_map(ToolFormat::markers).collect()),
            reasoning_specials: specials(
                reasoning.into_iter().flat_map(|r| r.markers().iter().copied()).collect(),
            ),
        };
        let shown = |format: Option<String>| format.unwrap_or_else(|| "none".into());
        tracing::info!(
            tool_calls = shown(tools.map(|format| format.to_string())),
            reasoning = shown(reasoning.map(|format| format.to_string())),
            "formats of answers"
        );
        Ok(formats)
    }

    /// How calls are written, if it is known.
    pub fn tools(&self) -> Option<ToolFormat> {
        self.tools
    }

    /// Refuses tools whose calls could not be read.
    ///
    /// # Errors
    /// 400
    pub fn check(&self, ask: &AnswerAsk) -> Result<(), ApiError> {
        if ask.schemas.is_none() || self.tools.is_some() {
            return Ok(());
        }
        let message = "`tools`: this server does not know how this model writes calls; name the \
                       format with --tool-call-parser, or set `tool_choice` to \"none\"";
        Err(ApiError { message: message.into(), ..ApiError::unsupported("tools") })
    }

    /// How an answer to `prompt` is taken apart; `None`: all of it is text.
    pub fn settings(&self, ask: AnswerAsk, prompt: &str) -> Option<AnswerSettings> {
        let tools = self.tools.filter(|_| ask.schemas.is_some());
        if tools.is_none() && self.reasoning.is_none() {
            return None;
        }
        let begins_inside = self.reasoning.is_some_and(|format| match &ask.begun {
            Some(text) => format.is_open_after(text),
            None => format.begins_inside(prompt),
        });
        let calls = if tools.is_some() { self.tool_specials.as_slice() } else { &[] };
        Some(AnswerSettings {
            parser: Settings {
                reasoning: self.reasoning,
                begins_inside,
                tools,
                schemas: ask.schemas.unwrap_or_default(),
                one_call: ask.one_call,
            },
            markers: self.reasoning_specials.iter().chain(calls).copied().collect(),
        })
    }
}

fn chosen<T>(choice: ParserChoice<T>, detect: impl FnOnce() -> Option<T>) -> Option<T> {
    match choice {
        ParserChoice::Auto => detect(),
        ParserChoice::None => None,
        ParserChoice::Format(format) => Some(format),
    }
}
