//! Every target over its seeds and what it found before (`corpora/`), without instrumentation;
//! `run.sh` builds with it and looks for new inputs.

use std::error::Error;
use std::path::Path;
use std::process::Command;

type Result = std::result::Result<(), Box<dyn Error>>;

/// Seconds for one input; the program ends with a finding beyond it.
const TIMEOUT_S: u32 = 120;

fn replay(target: &str, program: &str) -> Result {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let work = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.args(["-runs=0", "-verbosity=0", &format!("-timeout={TIMEOUT_S}")]);
    command.arg(format!("-artifact_prefix={}/", work.path().display()));
    let archive = fuzz.join("corpora").join(format!("{target}.tar.xz"));
    if archive.exists() {
        let corpus = work.path().join("corpus");
        std::fs::create_dir(&corpus)?;
        let unpacked =
            Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(&corpus).status()?;
        assert!(unpacked.success(), "{}: {unpacked}", archive.display());
        command.arg(corpus);
    }
    let seeds = fuzz.join("seeds").join(target);
    if seeds.exists() {
        command.arg(seeds);
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{target}: {}\n{said}", output.status);
    Ok(())
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() -> Result {
            replay(stringify!($name), env!(concat!("CARGO_BIN_EXE_", stringify!($name))))
        })*

        const TARGETS: &[&str] = &[$(stringify!($name)),*];
    };
}

targets! {
    answers, chunk_value, grammar_source, handshake, http_body, model_json, ring_hostile_device,
    ring_stream, safetensors_header, tokenizer_equality, tokenizer_json,
}

#[test]
fn no_target_is_left_out() -> Result {
    for file in Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets").read_dir()? {
        let name = file?.path().with_extension("");
        let name = name.file_name().and_then(|name| name.to_str()).ok_or("a name without text")?;
        assert!(TARGETS.contains(&name), "{name} is not replayed");
    }
    Ok(())
}
