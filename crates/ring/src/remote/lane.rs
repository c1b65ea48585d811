//! What a transport asks of each way to a region.

use std::fmt::Debug;

use crate::transport::Halves;

/// One path to a peer's region, used by one thread at a time. Accesses are as [`Transport`] has
/// them: in the region, aligned, and in order on one lane. After an error the lane is not used
/// again.
///
/// [`Transport`]: crate::transport::Transport
pub(super) trait Lane: Send + Debug {
    /// Names of what carries the data, comma-separated; empty if unknown.
    fn transports(&self) -> String;
    /// Writes payload, ordered by the next word that is put.
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), String>;
    /// Writes a word after all earlier puts.
    fn put_u32(&mut self, at: u64, value: u32) -> Result<(), String>;
    /// Writes a word after all earlier puts.
    fn put_u64(&mut self, at: u64, value: u64) -> Result<(), String>;
    /// Reads payload.
    fn get(&mut self, at: u64, out: &mut [u8]) -> Result<(), String>;
    /// Reads a word before all later accesses.
    fn get_u32(&mut self, at: u64) -> Result<u32, String>;
    /// Reads a word before all later accesses.
    fn get_u64(&mut self, at: u64) -> Result<u64, String>;
    /// Reads aligned words, none of them split, before all later accesses; some are two fields.
    fn get_fields(&mut self, at: u64, out: &mut [u64], halves: Halves) -> Result<(), String>;
    /// Adds to a word, after all earlier puts; returns its previous value.
    fn fetch_add_u32(&mut self, at: u64, value: u32) -> Result<u32, String>;
    /// Returns once the peer's region has all earlier puts.
    fn fence(&mut self) -> Result<(), String>;
    /// Asks the peer's process to wake the sleepers on a word.
    fn wake(&mut self, at: u64) -> Result<(), String>;
}
