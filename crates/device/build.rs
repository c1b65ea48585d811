//! Compiles the device plane for the CPU. The CUDA build is separate (device/CMakeLists.txt), so
//! that nothing here needs more than a C++ compiler.

use std::path::{Path, PathBuf};

/// Folders of `device/` that are no part of the library. Of all others the .cpp files make it up;
/// some hold only headers.
const OTHERS: [&str; 2] = ["cuda", "tests"];

fn main() {
    // Of this run: another checkout may have compiled this program into a shared target folder.
    let crate_root = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let root = Path::new(&crate_root).join("../..");
    let device = root.join("device");
    println!("cargo:rerun-if-changed={}", root.join("abi/wire.h").display());
    let folders = folders(&device);
    for folder in &folders {
        println!("cargo:rerun-if-changed={}", folder.display());
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
        .files(sources(&folders))
        .compile("saccade_device");
}

fn folders(device: &Path) -> Vec<PathBuf> {
    entries(device)
        .filter(|path| path.is_dir() && !OTHERS.iter().any(|other| path.ends_with(other)))
        .collect()
}

/// Every .cpp of the folders, in a stable order.
fn sources(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| entries(folder))
        .filter(|path| path.extension().is_some_and(|e| e == "cpp"))
        .collect();
    found.sort();
    found
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}
