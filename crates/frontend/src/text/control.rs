//! What a message says is text: a special token that is written in it must not become that token.
//!
//! HF's tokenizers find special tokens wherever they are written in a rendered conversation. Here
//! each one that a message has is marked before the conversation is rendered, by a character inside
//! it that is in no text; the tokenizer then takes those apart like any other text, and the marks
//! are gone.

use serde_json::Value;

use super::tokenizer::TextTokenizer;
use crate::validate::{ChatInput, Content};

/// Noncharacters of Unicode, for use inside a process: the first that no message has is the mark.
const MARKS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Marks the special tokens in a conversation. `None`: there are none, and nothing has changed.
///
/// # Errors
/// A sentence for the client, if its text has every character that could be the mark.
pub fn mark(chat: &mut ChatInput, tokenizer: &TextTokenizer) -> Result<Option<char>, String> {
    let mut found = false;
    visit(chat, &mut |text| found |= !tokenizer.specials_in(text).is_empty());
    if !found {
        return Ok(None);
    }
    let is_free = |mark: &char| {
        let mut free = true;
        visit(chat, &mut |text| free &= !text.contains(*mark));
        free
    };
    let Some(mark) = MARKS.into_iter().find(is_free) else {
        return Err("`messages` hold all of U+FDD0 to U+FDEF beside special tokens".into());
    };
    visit(chat, &mut |text| {
        for special in tokenizer.specials_in(text).into_iter().rev() {
            let first = text[special.start..].chars().next().map_or(0, char::len_utf8);
            text.insert(special.start + first, mark);
        }
    });
    Ok(Some(mark))
}

/// The text without its marks, and where they were.
pub fn unmark(marked: &str, mark: char) -> (String, Vec<usize>) {
    let (mut text, mut breaks) = (String::with_capacity(marked.len()), Vec::new());
    for (i, part) in marked.split(mark).enumerate() {
        if i > 0 {
            breaks.push(text.len());
        }
        text.push_str(part);
    }
    (text, breaks)
}

/// All that a client says within a conversation. Roles are the template's own words.
fn visit(chat: &mut ChatInput, each: &mut impl FnMut(&mut String)) {
    for message in &mut chat.messages {
        match &mut message.content {
            Content::None => {}
            Content::Text(text) => each(text),
            Content::Parts(parts) => parts.iter_mut().for_each(&mut *each),
        }
        message.name.iter_mut().for_each(&mut *each);
        message.reasoning_content.iter_mut().for_each(&mut *each);
        message.tool_call_id.iter_mut().for_each(&mut *each);
        message.tool_calls.iter_mut().for_each(|call| visit_value(call, each));
    }
    chat.tools.list.iter_mut().for_each(|tool| visit_value(tool, each));
    chat.template_kwargs.values_mut().for_each(|value| visit_value(value, each));
}

fn visit_value(value: &mut Value, each: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(values) => values.iter_mut().for_each(|value| visit_value(value, each)),
        Value::Object(map) => {
            let visited = std::mem::take(map).into_iter().map(|(mut key, mut value)| {
                each(&mut key);
                visit_value(&mut value, each);
                (key, value)
            });
            *map = visited.collect();
        }
        _ => {}
    }
}
