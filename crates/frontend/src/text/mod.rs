//! Text on both sides of the model: templates and tokens in, pieces and stop strings out. No I/O,
//! no clock but the one a template asks for.

mod bytes;
mod clock;
pub mod control;
pub mod detokenize;
pub mod pool;
mod probe;
pub mod stop;
pub mod template;
pub mod tokenizer;
pub mod vocab;
