//! The fetch plane.
pub mod layout;
