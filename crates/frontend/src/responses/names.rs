//! Errors of the chat's validator in the names of this API.

use super::items::Origin;
use crate::api_error::ApiError;

/// Fields of chat requests, and where a client of this API finds them. Longer names come first.
const NAMES: &[(&str, &str)] = &[
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("verbosity", "text.verbosity"),
    ("max_completion_tokens", "max_output_tokens"),
    ("max_tokens", "max_output_tokens"),
    ("messages", "input"),
];

/// The same error for a client of this API.
pub fn theirs(mut error: ApiError) -> ApiError {
    for (ours, theirs) in NAMES {
        rename(&mut error, ours, theirs);
    }
    // A tool has its function's fields itself here.
    if let Some(param) = error.param.clone().filter(|param| param.starts_with("tools[")) {
        rename(&mut error, &param, &param.replacen(".function.", ".", 1));
    }
    let both = "'max_tokens' or 'max_completion_tokens'";
    error.message = error.message.replace(both, "`max_output_tokens`");
    error
}

/// The same error; its messages were made of items, and it names these.
pub fn theirs_of(mut error: ApiError, origins: &[Origin]) -> ApiError {
    let index = error.param.as_deref().and_then(|param| {
        param.strip_prefix("messages[")?.split_once(']')?.0.parse::<usize>().ok()
    });
    if let Some((index, origin)) = index.and_then(|index| Some((index, origins.get(index)?))) {
        rename(&mut error, &format!("messages[{index}]"), &origin.name());
    }
    theirs(error)
}

/// Writes `theirs` for the field `ours` and for what is below it.
fn rename(error: &mut ApiError, ours: &str, theirs: &str) {
    let below = error.param.as_deref().and_then(|param| param.strip_prefix(ours));
    if let Some(rest) = below.filter(|rest| rest.is_empty() || rest.starts_with(['.', '['])) {
        error.param = Some(format!("{theirs}{rest}"));
    }
    for end in ['`', '.', '['] {
        error.message = error.message.replace(&format!("`{ours}{end}"), &format!("`{theirs}{end}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_messages_have_the_names_of_this_api() {
        for (param, message, want_param, want) in [
            (
                "max_tokens",
                "'max_tokens' or 'max_completion_tokens' is too large: 9",
                "max_output_tokens",
                "`max_output_tokens` is too large: 9",
            ),
            (
                "tools[1].function.name",
                "`tools[1].function.name` must be a name",
                "tools[1].name",
                "`tools[1].name` must be a name",
            ),
            (
                "messages[1].content",
                "`messages[1].content` is odd",
                "input[7].content",
                "`input[7].content` is odd",
            ),
            ("messages_of", "`messages_of` is another", "messages_of", "`messages_of` is another"),
        ] {
            let origins = [Origin::Instructions, Origin::Item(7)];
            let error = theirs_of(ApiError::invalid(param, message), &origins);
            assert_eq!((error.param.as_deref(), &*error.message), (Some(want_param), want));
        }
    }
}
