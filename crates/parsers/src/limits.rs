//! Every bound of a parser, in one place. What exceeds one is text, never an error.

/// Calls of one answer. The answer ends with the last of them.
pub const MAX_CALLS: u32 = 128;
/// Bytes that may be held back while it is open what they are: a call whose name is not known yet,
/// a Python call, a value that is not a string.
pub const MAX_HELD_BYTES: usize = 64 * 1024;
/// Bytes of the name of a function or of one of its parameters.
pub const MAX_NAME_BYTES: usize = 256;
/// White space that is held back because a call may follow it.
pub const MAX_SPACE_BYTES: usize = 256;
/// Brackets within brackets in the arguments of a call.
pub const MAX_DEPTH: u32 = 64;
