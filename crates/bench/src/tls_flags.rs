//! Flags of `https` targets, the same in every command that sends a load.

use std::path::PathBuf;

use saccade_load::Tls;

/// Which certificates are believed.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TlsFlags {
    /// Accept any certificate of an https server
    #[arg(long, conflicts_with = "cacert")]
    insecure: bool,
    /// Trust the certificates (PEM) in this file, in place of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
}

impl TlsFlags {
    /// For a target.
    #[must_use]
    pub fn tls(&self) -> Tls {
        Tls { insecure: self.insecure, ca_file: self.cacert.clone() }
    }
}
