//! Neighbours: processes that take what a server needs.
