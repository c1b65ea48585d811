//! One file per group of paths.

pub mod adapters;
pub mod chat;
pub mod completions;
pub mod embeddings;
mod generate;
pub mod messages;
pub mod models;
pub mod page;
mod pieces;
pub mod prefix;
pub mod render;
pub mod responses;
pub mod roof;
pub mod status;
pub mod tokens;
