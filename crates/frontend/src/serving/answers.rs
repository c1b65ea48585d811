//! How the model's answers are taken apart: which formats it writes, and what a request wants.

use std::sync::Arc;

use saccade_grammar::Source;
use saccade_parsers::{Calls, ReasoningFormat, Schemas, Settings, ToolFormat};
use serde_json::json;

use crate::api_error::ApiError;
use crate::config::{FrontendConfig, ParserChoice};
use crate::error::FrontendError;
use crate::text::template::ChatTemplate;
use crate::text::vocab::Vocab;
use crate::validate::{AskedGrammar, ChatInput, StrictCalls, ToolChoice};

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
    /// Where its calls are if a grammar holds it to them.
    held: Option<Calls>,
    one_call: bool,
    /// What holds its calls to their schemas if it may have none.
    strict: Option<StrictCalls>,
    /// The text that the answer goes on with, if it goes on with a message.
    begun: Option<String>,
}

impl AnswerAsk {
    /// Reads it from the conversation.
    pub fn of(chat: &ChatInput) -> Self {
        let may_call = chat.tools.choice != ToolChoice::None;
        Self {
            schemas: may_call.then(|| chat.tools.schemas.clone()),
            held: match &chat.tools.choice {
                ToolChoice::Auto if chat.tools.are_listed => Some(Calls::List),
                ToolChoice::None | ToolChoice::Auto => None,
                ToolChoice::Required => Some(Calls::List),
                ToolChoice::Named(name) => Some(Calls::ArgumentsOf(name.clone())),
            },
            one_call: !chat.tools.parallel,
            strict: chat.tools.strict.clone(),
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
        if ask.schemas.is_none() || ask.held.is_some() || self.tools.is_some() {
            return Ok(());
        }
        let message = "`tools`: this server does not know how this model writes calls; name the \
                       format with --tool-call-parser, or set `tool_choice` to \"none\"";
        Err(ApiError { message: message.into(), ..ApiError::unsupported("tools") })
    }

    /// What holds calls of strict functions to their schemas, if there are such and the model may
    /// leave calls out: text in its own format.
    ///
    /// # Errors
    /// 400 for a format that no grammar knows.
    pub fn strict_grammar(&self, ask: &AnswerAsk) -> Result<Option<AskedGrammar>, ApiError> {
        let Some(strict) = &ask.strict else { return Ok(None) };
        // Special tokens are never part of an answer under a grammar.
        let are_text = self.tool_specials.is_empty() && self.reasoning_specials.is_empty();
        let markers = self.tools.filter(|_| are_text).and_then(ToolFormat::json_markers);
        let Some((begin, end)) = markers else {
            let param = format!("tools[{}].function.strict", strict.first);
            let message = format!(
                "`{param}` must be false unless `tool_choice` is \"required\" or names a function: \
                 this server cannot hold calls to a schema in the format that this model writes"
            );
            return Err(ApiError { message, ..ApiError::unsupported(&param) });
        };
        let source = text_with_calls((begin, end), &strict.schema, ask.one_call);
        Ok(Some(AskedGrammar::of(source, "tools")))
    }

    /// How an answer to `prompt` is taken apart, which may obey a grammar; `None`: all of it is
    /// text.
    pub fn settings(&self, ask: AnswerAsk, prompt: &str, obeys: bool) -> Option<AnswerSettings> {
        // What a grammar holds an answer to is no thought, and a call only where it asks for one.
        if obeys {
            let calls = Some(ask.held?);
            let schemas = ask.schemas.unwrap_or_default();
            let parser = Settings { calls, schemas, one_call: ask.one_call, ..Settings::default() };
            return Some(AnswerSettings { parser, markers: Arc::default() });
        }
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
                calls: tools.map(Calls::Format),
                schemas: ask.schemas.unwrap_or_default(),
                one_call: ask.one_call,
            },
            markers: self.reasoning_specials.iter().chain(calls).copied().collect(),
        })
    }
}

/// Text in which calls are JSON of a schema between markers, with white space around it.
fn text_with_calls((begin, end): (&str, &str), schema: &str, once: bool) -> Source {
    let (begin, end) = (json!(begin), json!(end));
    let space = json!({"type": "regex", "pattern": r"[ \n]*"});
    // The schema is JSON text that may be long: it is not read here.
    let schema = format!(r#"{{"type":"json_schema","json_schema":{schema}}}"#);
    let call = format!(r#"{{"type":"sequence","elements":[{space},{schema},{space}]}}"#);
    let tag = format!(r#"{{"begin":{begin},"content":{call},"end":{end}}}"#);
    let tags = format!(r#""triggers":[{begin}],"tags":[{tag}],"stop_after_first":{once}"#);
    Source::StructuralTag(format!(r#"{{"format":{{"type":"triggered_tags",{tags}}}}}"#))
}

fn chosen<T>(choice: ParserChoice<T>, detect: impl FnOnce() -> Option<T>) -> Option<T> {
    match choice {
        ParserChoice::Auto => detect(),
        ParserChoice::None => None,
        ParserChoice::Format(format) => Some(format),
    }
}

#[cfg(test)]
mod tests {
    use saccade_grammar::{Limits, Walk, compile};

    use super::text_with_calls;

    #[test]
    fn calls_are_json_with_white_space_around_it() {
        let schema = r#"{"type":"array","items":{"type":"boolean"}}"#;
        let markers = ("<call>", "</call>");
        let [many, once] = [false, true].map(|once| {
            compile(&text_with_calls(markers, schema, once), &Limits::default()).unwrap()
        });
        for (text, of_many, of_once) in [
            ("", true, true),
            ("</call> <<call", true, true),
            ("So:\n<call>\n[true, false]\n \n</call>", true, true),
            ("<call>[true]</call>.", true, false),
            ("<call>[]</call> <call> [] </call>", true, false),
            ("<call>", false, false),
            ("<call>\\n[]</call>", false, false),
            ("<call>[1]</call>", false, false),
        ] {
            let accepts = |automaton| {
                let mut walk = Walk::start();
                walk.take_all(automaton, text.as_bytes()) && walk.may_end(automaton)
            };
            assert_eq!((accepts(&many), accepts(&once)), (of_many, of_once), "{text}");
        }
    }
}
