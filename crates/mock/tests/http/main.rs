//! The mock through its HTTP seam and its command line.

mod api;
mod cli;
mod client;
mod script;

use saccade_mock::{Script, Server};

/// A server with this script, on a free port.
fn start(script: &str) -> Server {
    let script = Script::from_json(script).expect("a script");
    Server::start(script, ([127, 0, 0, 1], 0).into()).expect("a server")
}
