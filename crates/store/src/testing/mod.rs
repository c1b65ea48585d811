//! For tests: real servers, and a proxy that misbehaves in front of them.
//!
//! What cannot be started panics: this is for tests alone.

mod dice;
mod proxy;
mod server;

pub use dice::Dice;
pub use proxy::{Fault, Injected, Proxy};
pub use server::{Program, RedisServer, S3Server, free_port};
