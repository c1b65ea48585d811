//! A terminal view of a running Saccade.
