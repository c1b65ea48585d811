//! OpenAI's Responses API: requests become chat requests, and answers lists of items. Nothing is
//! stored: a client sends the whole conversation each time.

mod echo;
mod format;
mod items;
mod names;
mod objects;
mod read;

pub use format::ResponsesFormat;
pub use names::theirs;
pub use read::{ResponsesRequest, read_responses};
