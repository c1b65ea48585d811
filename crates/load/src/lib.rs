//! Open- and closed-loop load on OpenAI-compatible servers, and what it says.
