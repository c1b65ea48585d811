//! What Linux says of a process and its cores.
