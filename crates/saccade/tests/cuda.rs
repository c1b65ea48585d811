//! `--device cuda` on a machine without a GPU, or without the library: a sentence that says so, and
//! an end that is not tried again.

#![allow(clippy::unwrap_used)] // in helpers of tests

use std::path::PathBuf;
use std::process::{Command, Output};

/// What serve answers at once, without a GPU.
fn serve(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_saccade"))
        .args(["serve", "--port", "0", "--kv-cache-memory-bytes", "1000000"])
        .args(flags)
        .output()
        .unwrap()
}

#[test]
fn without_the_library_it_says_where_it_is_looked_for() {
    let output = serve(&["--device", "cuda"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--device cuda needs libsaccade_cuda.so beside this program"), "{said}");
}

#[test]
fn what_is_no_library_is_refused_by_name() {
    let output = serve(&["--device", "cuda", "--cuda-library", "/dev/null"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("/dev/null"), "{said}");
}

/// Its flag is fine: what is missing is the library.
#[test]
fn fp8_kv_is_taken_and_other_kinds_are_not() {
    for name in ["auto", "fp8", "fp8_e4m3"] {
        let output = serve(&["--device", "cuda", "--kv-cache-dtype", name]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--device cuda needs libsaccade_cuda.so"), "{said}");
    }
    let output = serve(&["--kv-cache-dtype", "int8"]);
    let said = String::from_utf8_lossy(&output.stderr);
    for word in ["--kv-cache-dtype", "'int8'", "auto", "fp8", "fp8_e4m3"] {
        assert!(said.contains(word), "{said}");
    }
}

/// The library is looked for before adapters are read.
#[test]
fn adapters_are_taken() {
    for device in ["cuda", "cuda:null"] {
        let output = serve(&["--device", device, "--lora-modules", "a=/x"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--device cuda needs libsaccade_cuda.so"), "{said}");
    }
}

#[test]
fn a_ring_that_nobody_would_reach_is_refused() {
    for (flags, reason) in [
        (vec!["--device", "cpu"], "only --device cuda has memory of its own"),
        (vec!["--device", "cuda", "--scheduler", "host"], "--scheduler host reads the ring"),
        (vec!["--device", "cuda"], "--api-server-count 0"),
        (vec!["--device", "cuda", "--api-server-count", "0"], "without --ring-listen"),
    ] {
        let output = serve(&[&flags[..], &["--ring-memory", "device"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--ring-memory device: ") && said.contains(reason), "{said}");
    }
}

#[cfg(not(feature = "ucx"))]
#[test]
fn a_ring_that_only_rdma_reaches_needs_a_build_with_it() {
    let ring = "--device cuda --ring-memory device --api-server-count 0 --remote-frontends 1 \
                --ring-listen 127.0.0.1:0";
    let output = serve(&ring.split_whitespace().collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--ring-memory device: only RDMA reaches it there"), "{said}");
}

/// SACCADE_TEST_CUDA_LIBRARY: the library, as device/cuda/build.sh builds it.
#[test]
#[ignore = "needs SACCADE_TEST_CUDA_LIBRARY, as .ci/run cuda sets it"]
fn the_library_says_that_there_is_no_gpu() {
    let library = PathBuf::from(std::env::var_os("SACCADE_TEST_CUDA_LIBRARY").unwrap());
    assert!(library.exists(), "{}", library.display());
    if std::path::Path::new("/dev/nvidia0").exists() {
        return; // bench/gpu/check.sh serves from it
    }
    for device in ["cuda", "cuda:null"] {
        let path = library.to_str().unwrap();
        let output = serve(&["--device", device, "--cuda-library", path]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("no CUDA driver or GPU: cudaError"), "{said}");
    }
}
