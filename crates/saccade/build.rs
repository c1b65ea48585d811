//! Lists the files of the bundled model, so that the binary can carry them.

use std::fmt::Write as _;
use std::path::Path;

const FOLDER: &str = "../../models/saccade-tiny";

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let folder = Path::new(&manifest).join(FOLDER);
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("the bundled model's folder is in the tree")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.ends_with(".md"))
        .collect();
    names.sort();
    let mut code = String::from("[\n");
    for name in &names {
        let path = folder.join(name);
        writeln!(code, "    ({name:?}, include_bytes!({path:?}).as_slice()),").expect("writes");
    }
    code.push(']');
    std::fs::write(Path::new(&out).join("bundled_model.rs"), code).expect("OUT_DIR is writable");
}
