//! The supervisor's edges: planes that hang or die at once, the address, what a killed server
//! leaves behind, the environment, the limits of the system. What is seen from outside decides when
//! something happens; times only bound what hangs.

#[path = "../common/mod.rs"]
mod common;

mod address;
mod hanging;
mod leftovers;
mod limits;
mod restarts;
mod world;
