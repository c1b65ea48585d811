//! Compiles the device plane for the CPU. The CUDA build is separate (device/CMakeLists.txt), so
//! that nothing here needs more than a C++ compiler.

use std::path::{Path, PathBuf};

/// Folders of `device/` whose .cpp files make up the library.
const SOURCES: [&str; 7] = ["capi", "cpu", "host", "invariants", "plane", "ring", "sim"];
/// Folders that hold only headers; tests and CUDA are not part of it.
const HEADERS: [&str; 6] = ["platform", "grammar", "kv", "sample", "sched", "step"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let device = root.join("device");
    println!("cargo:rerun-if-changed={}", root.join("abi/wire.h").display());
    for folder in SOURCES.iter().chain(&HEADERS) {
        println!("cargo:rerun-if-changed={}", device.join(folder).display());
    }
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(3)
        // A product and a sum are one operation only where the source says so: results must not
        // depend on what the compiler fused in one copy of a loop and not in another.
        .flag("-ffp-contract=off")
        .include(&root)
        .include(&device)
        .files(sources(&device))
        .compile("saccade_device");
}

/// Every .cpp of the folders, in a stable order.
fn sources(device: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = SOURCES
        .iter()
        .flat_map(|folder| std::fs::read_dir(device.join(folder)).into_iter().flatten())
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "cpp"))
        .collect();
    found.sort();
    found
}
