//! CPU-to-GPU ratios of a cluster, from its scheduler's accounting.
