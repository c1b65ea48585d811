//! The interfaces on which UCX opens ports of its own.

use std::ffi::CStr;
use std::net::SocketAddr;

use super::super::listener::is_of_this_host;

/// UCX opens them on all interfaces, whatever the address that planes meet at. Where that address
/// is one of this host, no other needs to reach them: the interface's name, unless the user names
/// some (`UCX_NET_DEVICES`).
pub(super) fn for_addresses(addresses: &[SocketAddr]) -> Option<&'static CStr> {
    let of_this_host = !addresses.is_empty() && addresses.iter().all(is_of_this_host);
    let named = std::env::var_os("UCX_NET_DEVICES").is_some();
    (of_this_host && !named).then_some(c"lo")
}
