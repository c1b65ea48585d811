//! Chat templates: a conversation to the text that the model was trained to continue, as HF's
//! `apply_chat_template` renders it.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::Map;

use super::{clock, probe};
use crate::api_error::ApiError;
use crate::limits::{TEMPLATE_FUEL, TEMPLATE_OUTPUT_SLACK_BYTES};
use crate::validate::{ChatInput, Content, Message};

/// A compiled chat template with the special tokens it refers to.
pub struct ChatTemplate {
    env: Environment<'static>,
    tokens: SpecialTokens,
    takes: Takes,
}

/// What a template renders, found by trying.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Takes {
    tools: bool,
    calls: bool,
    /// An assistant that only calls may have no content at all; else it has an empty one.
    none: bool,
}

/// Texts of the special tokens, as template variables.
#[derive(Debug, Clone, Default)]
pub struct SpecialTokens {
    /// `bos_token`
    pub bos: Option<String>,
    /// `eos_token`
    pub eos: Option<String>,
    /// `pad_token`
    pub pad: Option<String>,
    /// `unk_token`
    pub unk: Option<String>,
}

const NAME: &str = "chat_template";

impl ChatTemplate {
    /// Compiles `text`.
    ///
    /// # Errors
    /// The template's syntax error, with its line.
    pub fn new(text: &str, tokens: SpecialTokens) -> Result<Self, Error> {
        let mut env = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        env.set_syntax(syntax.build()?);
        env.set_fuel(Some(TEMPLATE_FUEL));
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_function("raise_exception", raise_exception);
        env.add_function("strftime_now", strftime_now);
        env.add_filter("tojson", tojson);
        env.add_test("iterable", is_iterable);
        env.add_template_owned(NAME, without_generation_tags(text))?;
        let template = Self { env, tokens, takes: Takes::default() };
        let none = template.takes_none();
        let template = Self { takes: Takes { none, ..Takes::default() }, ..template };
        let (tools, calls) = (template.shows(&probe::tools()), template.shows(&probe::calls()));
        Ok(Self { takes: Takes { tools, calls, none }, ..template })
    }

    /// Whether any of the conversations shows its probe. Where none can be rendered, it is open:
    /// requests get the template's own error then.
    fn shows(&self, chats: &[ChatInput]) -> bool {
        let texts: Vec<String> =
            chats.iter().filter_map(|chat| self.render_any(chat).ok()).collect();
        texts.is_empty() || texts.iter().any(|text| text.contains(probe::NAME))
    }

    /// Whether a content that is none is rendered as none at all, neither as a word nor as an
    /// error. Some templates ask for it, others take every content for a text.
    fn takes_none(&self) -> bool {
        let takes = Takes { none: true, ..self.takes };
        let text = self.render_with(&probe::only_calls(), takes);
        text.is_ok_and(|text| text.contains(probe::NAME) && !text.to_lowercase().contains("none"))
    }

    /// Its source.
    pub fn source(&self) -> String {
        let template = self.env.get_template(NAME);
        template.map(|template| template.source().to_owned()).unwrap_or_default()
    }

    /// Text of the beginning-of-sequence token.
    pub fn bos(&self) -> Option<&str> {
        self.tokens.bos.as_deref()
    }

    /// Renders a conversation. What the template would leave out is refused.
    ///
    /// # Errors
    /// 400 with what the template raised, which bound it hit, or what it does not render.
    pub fn render(&self, input: &ChatInput) -> Result<String, ApiError> {
        if !input.tools.list.is_empty() && !self.takes.tools {
            let message = "`tools`: the chat template of this model does not render tools \
                           (--chat-template replaces it)";
            return Err(ApiError::invalid("tools", message));
        }
        let calling = input.messages.iter().position(|m| !m.tool_calls.is_empty());
        if let Some(index) = calling.filter(|_| !self.takes.calls) {
            let param = format!("messages[{index}].tool_calls");
            let message = format!(
                "`{param}`: the chat template of this model does not render tool calls \
                 (--chat-template replaces it)"
            );
            return Err(ApiError::invalid(param, message));
        }
        self.render_any(input).map_err(|e| ApiError::invalid("messages", e))
    }

    fn render_any(&self, input: &ChatInput) -> Result<String, String> {
        self.render_with(input, self.takes)
    }

    fn render_with(&self, input: &ChatInput, takes: Takes) -> Result<String, String> {
        let four_times = input.text_bytes().saturating_mul(4);
        let mut out = Bounded {
            bytes: Vec::new(),
            max_bytes: four_times.saturating_add(TEMPLATE_OUTPUT_SLACK_BYTES),
        };
        let template = self.env.get_template(NAME).map_err(|e| e.to_string())?;
        let rendered = template.render_captured_to(self.context(input, takes), &mut out);
        rendered.map_err(|e| explain(&e))?;
        let text = String::from_utf8(out.bytes).map_err(|e| e.to_string())?;
        if input.continue_final_message { cut_after_final(text, input) } else { Ok(text) }
    }

    fn context(&self, input: &ChatInput, takes: Takes) -> Value {
        let mut context: Map<String, serde_json::Value> = input.template_kwargs.clone();
        let messages = input.messages.iter().map(|m| message_value(m, takes)).collect();
        context.insert("messages".into(), serde_json::Value::Array(messages));
        context.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
        // HF defines both always: a template may ask whether they are none.
        let tools = &input.tools.list;
        let tools = (!tools.is_empty()).then(|| serde_json::Value::Array(tools.clone()));
        context.insert("tools".into(), tools.unwrap_or_default());
        context.insert("documents".into(), serde_json::Value::Null);
        for (name, text) in [
            ("bos_token", &self.tokens.bos),
            ("eos_token", &self.tokens.eos),
            ("pad_token", &self.tokens.pad),
            ("unk_token", &self.tokens.unk),
        ] {
            if let Some(text) = text {
                context.insert(name.into(), text.as_str().into());
            }
        }
        Value::from(Serde(&context))
    }
}

fn message_value(message: &Message, takes: Takes) -> serde_json::Value {
    let mut map = Map::new();
    map.insert("role".into(), message.role.as_str().into());
    let only_calls = message.content == Content::None && !message.tool_calls.is_empty();
    let content = (!(only_calls && takes.none)).then(|| message.content.joined());
    map.insert("content".into(), content.into());
    if let Some(name) = &message.name {
        map.insert("name".into(), name.as_str().into());
    }
    if let Some(text) = &message.reasoning_content {
        map.insert("reasoning_content".into(), text.as_str().into());
    }
    if !message.tool_calls.is_empty() {
        map.insert("tool_calls".into(), message.tool_calls.clone().into());
    }
    if let Some(id) = &message.tool_call_id {
        map.insert("tool_call_id".into(), id.as_str().into());
    }
    serde_json::Value::Object(map)
}

/// The text up to the end of the final message, so that the model continues it.
fn cut_after_final(mut text: String, input: &ChatInput) -> Result<String, String> {
    let last = input.messages.last().map(|m| m.content.joined()).unwrap_or_default();
    let Some(start) = text.rfind(last.trim()) else {
        return Err("`continue_final_message`: the chat template does not render the final \
                    message as it is"
            .into());
    };
    let (with_tail, trimmed) = (last.trim_start(), last.trim());
    let keep = if text[start..].starts_with(with_tail) { with_tail } else { trimmed };
    text.truncate(start + keep.len());
    Ok(text)
}

/// HF marks the assistant's tokens by `{% generation %}`, which prints nothing by itself.
fn without_generation_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{%") {
        let Some(end) = rest[start..].find("%}").map(|n| start + n) else { break };
        let tag = &rest[start + 2..end];
        let word = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replaced = match word {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_owned(),
        };
        out.push_str(&rest[..start + 2]);
        out.push_str(&replaced);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn explain(error: &Error) -> String {
    let detail = match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    };
    format!("chat template: {detail}")
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: String) -> Result<String, Error> {
    clock::strftime_now(&format).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
}

/// As in Jinja, where none is not iterable; here it iterates over nothing.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)`: unlike the built-in filter, no HTML
/// escapes, and Python's separators.
fn tojson(value: &Value, indent: Option<usize>, kwargs: Kwargs) -> Result<Value, Error> {
    let failed =
        |e: &dyn std::fmt::Display| Error::new(ErrorKind::InvalidOperation, format!("tojson: {e}"));
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<usize>>("indent")?,
    };
    let mut out = Vec::new();
    let written = match indent {
        Some(indent) => {
            let spaces = vec![b' '; indent.min(16)];
            let pretty = serde_json::ser::PrettyFormatter::with_indent(&spaces);
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, pretty))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Python)),
    };
    written.map_err(|e| failed(&e))?;
    let text = String::from_utf8(out).map_err(|e| failed(&e))?;
    Ok(Value::from_safe_string(text))
}

/// Separators of Python's `json.dumps`.
struct Python;

impl serde_json::ser::Formatter for Python {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }
    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }
    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

/// Output that fails once it is longer than its bound.
struct Bounded {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > self.max_bytes {
            return Err(io::Error::other(format!("more than {} bytes", self.max_bytes)));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(messages: &[(&str, &str)]) -> ChatInput {
        let message = |(role, text): &(&str, &str)| Message {
            role: (*role).into(),
            content: Content::Text((*text).into()),
            name: None,
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        };
        ChatInput {
            messages: messages.iter().map(message).collect(),
            add_generation_prompt: true,
            ..ChatInput::default()
        }
    }

    fn render(template: &str, input: &ChatInput) -> Result<String, String> {
        let tokens = SpecialTokens { bos: Some("<s>".into()), ..SpecialTokens::default() };
        let template = ChatTemplate::new(template, tokens).map_err(|e| e.to_string())?;
        template.render(input).map_err(|e| e.message)
    }

    const CHATML: &str = "{{ bos_token }}{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message.content.strip() + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}";

    #[test]
    fn blocks_are_trimmed_like_hf_does() {
        let text = render(CHATML, &input(&[("user", " hi ")])).unwrap();
        assert_eq!(text, "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    }

    #[test]
    fn the_final_message_can_be_continued() {
        let mut chat = input(&[("user", "hi"), ("assistant", "Well, ")]);
        (chat.add_generation_prompt, chat.continue_final_message) = (false, true);
        let text = render(CHATML, &chat).unwrap();
        assert!(text.ends_with("<|im_start|>assistant\nWell,"), "{text}");
    }

    #[test]
    fn raised_exceptions_reach_the_client() {
        let template = "{{ raise_exception('roles must alternate') }}";
        let error = render(template, &input(&[("user", "x")])).unwrap_err();
        assert_eq!(error, "chat template: roles must alternate");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let template = "{{ messages[0] | tojson }}{{ [1, {'a': none}] | tojson(indent=2) }}";
        let text = render(template, &input(&[("user", "<é>")])).unwrap();
        let pretty = "[\n  1,\n  {\n    \"a\": null\n  }\n]";
        assert_eq!(text, format!("{{\"role\": \"user\", \"content\": \"<é>\"}}{pretty}"));
    }

    #[test]
    fn time_and_output_are_bounded() {
        let long = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
        assert!(render(long, &input(&[("user", "x")])).unwrap_err().contains("fuel"));
        let big = "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}";
        assert!(render(big, &input(&[("user", "x")])).is_err());
    }

    #[test]
    fn none_is_not_iterable() {
        let template = "{{ tools is iterable }} {{ messages is iterable }} {{ 'x' is iterable }}";
        assert_eq!(render(template, &input(&[("user", "x")])).unwrap(), "False True True");
    }

    #[test]
    fn generation_tags_print_nothing() {
        let template = "a{%- generation %}b{% endgeneration -%} c";
        assert_eq!(render(template, &input(&[("user", "x")])).unwrap(), "abc");
    }
}
