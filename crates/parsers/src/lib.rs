#![doc = include_str!("../README.md")]

mod array;
mod bare;
mod call;
mod deepseek;
mod formats;
mod held;
mod json;
pub mod limits;
mod markers;
mod parser;
mod python;
mod pythonic;
mod reasoning;
mod schema;
mod sink;
mod tagged;
mod xml;

pub use formats::{Calls, ReasoningFormat, ToolFormat};
pub use parser::{AnswerParser, Settings};
pub use schema::Schemas;
pub use sink::Event;
