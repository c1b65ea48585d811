//! With the feature `ucx`: compiles the shim over UCX that pkg-config finds. Without it: nothing.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "ucx")]
    ucx();
}

/// Debian 12 ships 1.13. From 1.14 on UCX reports its transports, which allows bulk RDMA reads.
#[cfg(feature = "ucx")]
fn ucx() {
    println!("cargo:rerun-if-changed=src/remote/ucx/shim.c");
    println!("cargo:rerun-if-changed=src/remote/ucx/shim.h");
    // Before the library, because the linker resolves symbols in order of use.
    let headers = pkg_config::Config::new()
        .atleast_version("1.13")
        .cargo_metadata(false)
        .probe("ucx")
        .unwrap_or_else(|error| panic!("the feature `ucx` needs UCX 1.13 or newer: {error}"));
    cc::Build::new()
        .std("c11")
        .file("src/remote/ucx/shim.c")
        .includes(&headers.include_paths)
        .compile("saccade_ring_ucx");
    let linked = pkg_config::Config::new().atleast_version("1.13").probe("ucx");
    linked.expect("found above");
}
