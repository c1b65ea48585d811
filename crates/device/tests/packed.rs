//! Packed weights in a folder: the same tokens with and without it, nothing packed by the second
//! start, and no file that is damaged, foreign or half written is ever believed.

#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use saccade_device::{Device, PackedUse, Quantization};
use saccade_model::{Dtype, DtypeChoice, Weights};
use serde_json::Value;

use common::{Records, Setup, bits, create, expected, open, reference, serve, serve_on};

const MODEL: &str = "qwen3-bf16-v4";

fn model(name: &str) -> PathBuf {
    reference().join("models").join(name)
}

fn setup(choice: DtypeChoice, quantization: Quantization) -> Setup {
    Setup { quantization, ..Setup::roomy(choice) }
}

fn plain() -> Setup {
    setup(DtypeChoice::Auto, Quantization::None)
}

/// A device loaded through the folder `dir`, and the outcome.
fn load(path: &Path, setup: &Setup, dir: &Path) -> (Device, PackedUse) {
    let folder = open(path);
    let config = folder.config().unwrap();
    let weights = Weights::open(&folder, &config).unwrap();
    let dtype = setup.choice.resolve(config.dtype, weights.stored_dtype());
    let mut device = create(&config, Some(&weights), dtype, setup);
    let mut last = (0, 0);
    let outcome = device.load_packed(&weights, dir, |done, total| last = (done, total)).unwrap();
    assert!(last.0 == last.1 && last.1 > 0, "progress ended at {last:?}");
    device.finish_load().unwrap();
    (device, outcome)
}

fn outcome(path: &Path, setup: &Setup, dir: &Path) -> PackedUse {
    load(path, setup, dir).1
}

fn written(outcome: PackedUse) -> PathBuf {
    match outcome {
        PackedUse::Packed { refused: None, kept: Ok((path, bytes)) } => {
            assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
            path
        }
        other => panic!("{other:?}"),
    }
}

/// Why the file was not used; it has been rewritten.
fn refused(outcome: PackedUse) -> String {
    match outcome {
        PackedUse::Packed { refused: Some(reason), kept: Ok(_) } => reason,
        other => panic!("{other:?}"),
    }
}

fn is_mapped(outcome: &PackedUse) -> bool {
    matches!(outcome, PackedUse::Mapped { .. })
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// splitmix64.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) as usize
}

fn results(name: &str) -> Vec<Value> {
    expected(name)["results"].as_array().unwrap().clone()
}

fn records(device: Device, results: &[Value]) -> Vec<Records> {
    serve_on(device, &[results]).0
}

/// Every form in which tensors come: tied or not, with biases, in shards, several stored as one, of
/// experts; in each element type, and in 8 bits.
#[test]
fn a_second_start_maps_what_the_first_packed_and_gives_the_same() {
    let f32 = DtypeChoice::Fixed(Dtype::F32);
    for (name, choice) in [
        ("llama-llama3-tied-v5", f32),
        ("qwen2-defaults-v4", f32),
        ("qwen3-biases-yarn-v4", DtypeChoice::Fixed(Dtype::F16)),
        ("llama-linear-sharded-v4", DtypeChoice::Fixed(Dtype::Bf16)),
        ("phi3-plain-v4", DtypeChoice::Fixed(Dtype::Bf16)),
        ("qwen3moe-dense-layers-v5", DtypeChoice::Fixed(Dtype::Bf16)),
        ("qwen3moe-fp8-bf16-v5", DtypeChoice::Fixed(Dtype::Bf16)),
    ] {
        let results = results(name);
        for quantization in [Quantization::None, Quantization::Int8, Quantization::Fp8] {
            let what = format!("{name} {choice:?} {quantization:?}");
            let setup = setup(choice, quantization);
            let dir = tempfile::tempdir().unwrap();
            let (without, _) = serve(name, &setup, &[&results]);
            let (first, packed) = load(&model(name), &setup, dir.path());
            let path = written(packed);
            assert_eq!(files(dir.path()), [path.file_name().unwrap().to_str().unwrap()]);
            assert!(bits(&records(first, &results)) == bits(&without), "{what}: first start");
            let (second, mapped) = load(&model(name), &setup, dir.path());
            assert!(is_mapped(&mapped), "{what}: {mapped:?}");
            assert!(bits(&records(second, &results)) == bits(&without), "{what}: second start");
        }
    }
}

/// Copies a model's files, with the time of their last change.
fn copy_model(name: &str, to: &Path) {
    for entry in fs::read_dir(model(name)).unwrap() {
        let entry = entry.unwrap();
        let copy = to.join(entry.file_name());
        fs::copy(entry.path(), &copy).unwrap();
        let modified = entry.metadata().unwrap().modified().unwrap();
        File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
    }
}

#[test]
fn the_key_follows_content_and_layout_not_the_path() {
    let dir = tempfile::tempdir().unwrap();
    written(outcome(&model(MODEL), &plain(), dir.path()));
    let copy = tempfile::tempdir().unwrap();
    copy_model(MODEL, copy.path());
    assert!(is_mapped(&outcome(copy.path(), &plain(), dir.path())), "the same under another path");

    let int8 = setup(DtypeChoice::Auto, Quantization::Int8);
    let f32 = setup(DtypeChoice::Fixed(Dtype::F32), Quantization::None);
    written(outcome(copy.path(), &int8, dir.path()));
    written(outcome(copy.path(), &f32, dir.path()));

    // A tensor of the same length changed in place, and the time of the change set back.
    let weights = copy.path().join("model.safetensors");
    let modified = fs::metadata(&weights).unwrap().modified().unwrap();
    let mut bytes = fs::read(&weights).unwrap();
    let folder = open(copy.path());
    let opened = Weights::open(&folder, &folder.config().unwrap()).unwrap();
    let tensor = opened.iter().last().unwrap();
    let first = opened.iter().map(|t| t.data.as_ptr() as usize).min().unwrap();
    let start = bytes.len() - opened.total_bytes() as usize;
    let at = tensor.data.as_ptr() as usize - first + start + tensor.data.len() / 2;
    bytes[at] ^= 1;
    drop(opened);
    fs::write(&weights, &bytes).unwrap();
    let file = File::options().write(true).open(&weights).unwrap();
    file.set_modified(modified).unwrap();
    written(outcome(copy.path(), &plain(), dir.path()));
    // Another time alone is another file too: what is not sampled may have changed.
    file.set_modified(modified + std::time::Duration::from_secs(1)).unwrap();
    written(outcome(copy.path(), &plain(), dir.path()));
    assert_eq!(files(dir.path()).len(), 5, "files of other keys are kept");
}

#[test]
fn a_damaged_file_is_refused_with_a_reason_and_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let results = results(MODEL);
    let (device, packed) = load(&model(MODEL), &plain(), dir.path());
    let without = bits(&records(device, &results));
    let path = written(packed);
    let good = fs::read(&path).unwrap();
    let middle = good.len() / 2;
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage, &str); 7] = [
        ("empty", |b| b.clear(), "has 0 bytes, expected"),
        ("cut", |b| b.truncate(b.len() - 1), "bytes, expected"),
        ("longer", |b| b.push(0), "bytes, expected"),
        ("zeros", |b| b.fill(0), "does not begin"),
        ("version", |b| b[16] ^= 1, "format version"),
        ("key", |b| b[30] ^= 1, "header with a wrong checksum"),
        ("last byte", |b| *b.last_mut().unwrap() ^= 0x80, "wrong checksum in chunk"),
    ];
    for (what, damage, words) in cases {
        let mut bytes = good.clone();
        damage(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        let (device, packed) = load(&model(MODEL), &plain(), dir.path());
        let reason = refused(packed);
        assert!(reason.contains(words), "{what}: {reason}");
        assert!(reason.contains(path.to_str().unwrap()), "{what}: {reason}");
        assert!(bits(&records(device, &results)) == without, "{what}");
        assert!(fs::read(&path).unwrap() == good, "{what}: not as it was");
        assert!(is_mapped(&outcome(&model(MODEL), &plain(), dir.path())), "{what}");
    }
    assert_ne!(good[middle..], [0; 1]); // the payload is not all zero
}

#[test]
fn no_mutation_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(outcome(&model(MODEL), &plain(), dir.path()));
    let good = fs::read(&path).unwrap();
    for seed in 0..300_u64 {
        let mut state = seed;
        let mut bytes = good.clone();
        // Half of them in the header.
        let range = if seed % 2 == 0 { bytes.len() } else { 4096 };
        for _ in 0..=random(&mut state) % 3 {
            bytes[random(&mut state) % range] ^= (random(&mut state) % 255 + 1) as u8;
        }
        match seed % 5 {
            0 => bytes.truncate(random(&mut state) % bytes.len()),
            1 => bytes.extend(vec![0; random(&mut state) % 10_000]),
            _ => {}
        }
        if bytes == good {
            continue;
        }
        fs::write(&path, &bytes).unwrap();
        let found = outcome(&model(MODEL), &plain(), dir.path());
        assert!(!is_mapped(&found), "seed {seed}: {found:?}");
        refused(found);
    }
}

#[test]
fn a_folder_that_cannot_be_written_costs_only_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let (device, packed) = load(&model(MODEL), &plain(), &file.join("below"));
    match packed {
        PackedUse::Packed { kept: Err(reason), .. } => {
            assert!(reason.contains("below"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let results = results(MODEL);
    assert!(bits(&records(device, &results)) == bits(&serve(MODEL, &plain(), &[&results]).0));
}

#[test]
fn what_a_killed_writer_left_is_overwritten_and_a_live_one_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(outcome(&model(MODEL), &plain(), dir.path()));
    let good = fs::read(&path).unwrap();
    let temporary = path.with_extension("tmp");

    // Whole, but for the rename.
    fs::rename(&path, &temporary).unwrap();
    assert_eq!(written(outcome(&model(MODEL), &plain(), dir.path())), path);
    // Longer than the new file, with other bytes.
    fs::remove_file(&path).unwrap();
    fs::write(&temporary, vec![0x5a; good.len() + 100_000]).unwrap();
    written(outcome(&model(MODEL), &plain(), dir.path()));
    assert!(fs::read(&path).unwrap() == good);
    assert!(!temporary.exists());

    // Another writer holds the lock.
    fs::remove_file(&path).unwrap();
    let writer = File::create(&temporary).unwrap();
    writer.lock().unwrap();
    match outcome(&model(MODEL), &plain(), dir.path()) {
        PackedUse::Packed { refused: None, kept: Err(reason) } => {
            assert_eq!(reason, "another process is writing it");
        }
        other => panic!("{other:?}"),
    }
    assert!(!path.exists());
    assert_eq!(fs::metadata(&temporary).unwrap().len(), 0, "the other's file was written to");
    drop(writer);
    written(outcome(&model(MODEL), &plain(), dir.path()));
}

#[test]
fn starts_at_the_same_time_harm_nobody() {
    let results = results(MODEL);
    let without = bits(&serve(MODEL, &plain(), &[&results]).0);
    for round in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let (device, outcome) = load(&model(MODEL), &plain(), dir.path());
                    if let PackedUse::Packed { refused, kept } = outcome {
                        assert_eq!(refused, None, "round {round}: a reader saw half a file");
                        if let Err(reason) = kept {
                            assert!(reason.starts_with("another process"), "{reason}");
                        }
                    }
                    assert!(bits(&records(device, &results)) == without, "round {round}");
                });
            }
        });
        assert_eq!(files(dir.path()).len(), 1, "round {round}");
        assert!(is_mapped(&outcome(&model(MODEL), &plain(), dir.path())), "round {round}");
    }
}
