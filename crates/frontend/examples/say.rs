//! A frontend whose device says the same text to every request: what clients make of an answer can
//! be tested without a model that gives it.
//!
//!     say TEMPLATE_FILE TEXT
//!
//! Prints the server's URL, and serves until its standard input ends.

// The fake server of the tests: this is one more of its users.
#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Read;

use common::Harness;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [template, text] = arguments.as_slice() else {
        return Err("usage: say TEMPLATE_FILE TEXT".into());
    };
    let change = |config: &mut saccade_frontend::FrontendConfig| {
        config.chat_template = Some(template.into());
    };
    let server = Harness::with(change, Default::default());
    server.device.say(text);
    println!("http://{}", server.addr);
    let read = std::io::stdin().read_to_end(&mut Vec::new());
    read.map(|_| ()).map_err(|e| e.to_string())
}
