//! Conversations that show what a chat template renders. A template that has no word for tools
//! drops them without one, and the model would never hear of them.

use serde_json::json;

use crate::validate::{ChatInput, Content, Message, Tools};

/// A name that no template has.
pub const NAME: &str = "saccade_probe";

/// Conversations with a tool of that name: some templates want a system message for it.
pub fn tools() -> [ChatInput; 2] {
    let tool = json!({"type": "function", "function": {"name": NAME, "description": "-",
        "parameters": {"type": "object", "properties": {}}}});
    let with_tool = |messages: Vec<Message>| ChatInput {
        messages,
        add_generation_prompt: true,
        tools: Tools { list: vec![tool.clone()], ..Tools::default() },
        ..ChatInput::default()
    };
    [with_tool(vec![said("user", "-")]), with_tool(vec![said("system", "-"), said("user", "-")])]
}

/// Conversations with a call of that name, with and without text beside it.
pub fn calls() -> [ChatInput; 2] {
    [only_calls(), with_call(Content::Text("-".into()))]
}

/// One with a call and no text beside it.
pub fn only_calls() -> ChatInput {
    with_call(Content::None)
}

fn with_call(content: Content) -> ChatInput {
    // Nine letters and digits: what Mistral's templates insist on.
    let id = "a1b2c3d4e";
    let call = json!({"id": id, "type": "function", "function": {"name": NAME, "arguments": {}}});
    let calling = Message { content, tool_calls: vec![call], ..said("assistant", "") };
    let answer = Message { tool_call_id: Some(id.into()), ..said("tool", "-") };
    ChatInput { messages: vec![said("user", "-"), calling, answer], ..ChatInput::default() }
}

fn said(role: &str, text: &str) -> Message {
    Message {
        role: role.into(),
        content: Content::Text(text.into()),
        name: None,
        reasoning_content: None,
        tool_calls: Vec::new(),
        tool_call_id: None,
    }
}
