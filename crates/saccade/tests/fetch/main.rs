//! Servers that share prefix KV through a store: whatever the store, the planes or the disk do, an
//! answer is the one that a server without a cache gives.

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod deaths;
mod sharing;
mod trouble;
mod world;
