//! A scripted OpenAI-compatible server with known delays.

fn main() {}
