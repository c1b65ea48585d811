//! Says whether a running engine is short of CPU, and what that costs.
