//! The layout of `abi/fetch.h` is the same everywhere: as the C compiler sees it, in the committed
//! golden dump, in its hash, and in the Rust mirror.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use saccade_fetch::layout::*;

fn abi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../abi")
}

fn golden() -> String {
    std::fs::read_to_string(abi().join("fetch.layout.txt")).expect("the golden dump is committed")
}

/// Compiles and runs `abi/dump_fetch_layout.c`.
fn dump_from_c() -> String {
    let compilers = [std::env::var("CC").unwrap_or_default(), "cc".into(), "gcc".into()];
    let works = |cc: &&String| {
        !cc.is_empty()
            && std::process::Command::new(cc)
                .arg("--version")
                .output()
                .is_ok_and(|o| o.status.success())
    };
    let compiler = compilers.iter().find(works).expect("a C compiler: $CC, cc or gcc");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dump_fetch_layout");
    let compiled = std::process::Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .arg(&program)
        .arg(abi().join("dump_fetch_layout.c"))
        .output()
        .expect("the compiler ran a moment ago");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let dumped = std::process::Command::new(&program).output().expect("just compiled");
    String::from_utf8(dumped.stdout).expect("the dump is ASCII")
}

/// Compares line by line, so that a failure names the first difference.
fn assert_same(dump: &str, advice: &str) {
    let golden = golden();
    for (line, expected) in dump.lines().zip(golden.lines()) {
        assert_eq!(line, expected, "{advice}");
    }
    assert_eq!(dump.lines().count(), golden.lines().count(), "{advice}");
}

#[test]
fn the_header_matches_the_golden_dump() {
    assert_same(
        &dump_from_c(),
        "abi/fetch.h changed: follow \"Changing the layout\" in abi/README.md",
    );
}

#[test]
fn the_hash_is_that_of_the_golden_dump() {
    let hash = golden().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let header = std::fs::read_to_string(abi().join("fetch.h")).expect("the header is committed");
    let line = format!("#define SAC_FETCH_LAYOUT_HASH UINT64_C({hash:#018x})");
    assert!(header.contains(&line), "abi/fetch.h must say: {line}");
    assert_eq!(SAC_FETCH_LAYOUT_HASH, hash, "crates/fetch/src/layout.rs must say {hash:#018x}");
}

/// A constant that is added to the header must also be added to the dump.
#[test]
fn the_dump_names_every_constant() {
    let header = std::fs::read_to_string(abi().join("fetch.h")).expect("the header is committed");
    let golden = golden();
    let no_data = ["SAC_FETCH_LAYOUT_HASH"];
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define "));
    let names = defined.filter_map(|rest| rest.split_whitespace().next());
    let mut count = 0;
    for name in names.filter(|name| name.starts_with("SAC_") && !name.contains('(')) {
        if !no_data.contains(&name) {
            let line = format!("constant {name} ");
            assert!(golden.contains(&line), "abi/dump_fetch_layout.c does not print {name}");
            count += 1;
        }
    }
    assert_eq!(count, golden.lines().filter(|line| line.starts_with("constant ")).count());
}

/// A field that is added to a struct must also be added to the dump: fields are contiguous, because
/// the header names its padding.
#[test]
fn the_dump_has_no_gap() {
    let number = |line: &str, key: &str| -> usize {
        let mut words = line.split_whitespace().skip_while(|word| *word != key);
        words.nth(1).and_then(|word| word.parse().ok()).expect("key and number")
    };
    let mut expected: Option<(String, usize, usize)> = None;
    let golden = golden();
    for line in golden.lines().chain(["struct end size 0"]) {
        if line.starts_with("struct ") {
            if let Some((name, end, size)) = expected.take() {
                assert_eq!(end, size, "{name} has bytes behind its last field");
            }
            expected = Some((line.into(), 0, number(line, "size")));
        } else if let (true, Some((name, end, _))) = (line.starts_with("  "), expected.as_mut()) {
            assert_eq!(number(line, "offset"), *end, "gap before {line} in {name}");
            *end += number(line, "size");
        }
    }
}

macro_rules! constants {
    ($out:ident: $($name:ident)*) => {
        $(writeln!($out, "constant {} {}", stringify!($name), $name as u64).expect("a string");)*
    };
}

macro_rules! fields {
    ($out:ident: $c:literal $type:ident: $($field:ident)*) => {
        let (size, align) = (size_of::<$type>(), align_of::<$type>());
        writeln!($out, "struct {} size {size} align {align}", $c).expect("a string");
        $({
            let offset = std::mem::offset_of!($type, $field);
            let zero: $type = bytemuck::Zeroable::zeroed();
            let size = size_of_val(&zero.$field);
            let name = stringify!($field);
            writeln!($out, "  {name} offset {offset} size {size}").expect("a string");
        })*
    };
}

fn dump_from_rust() -> String {
    let mut out = String::new();
    constants!(out: SAC_FETCH_MAGIC SAC_FETCH_VERSION SAC_CHUNK_TOKENS SAC_MAX_FETCH_QUEUE
        SAC_MAX_FETCH_ENTRIES SAC_MAX_FETCH_FRAMES SAC_MAX_KV_EVENTS SAC_FETCH_HEARTBEAT_MS
        SAC_FETCH_LOOKUP SAC_FETCH_LOAD SAC_FETCH_STORE SAC_FETCH_CANCEL SAC_FETCH_DONE
        SAC_FETCH_MISS SAC_FETCH_LATE SAC_FETCH_TROUBLE SAC_FETCH_REJECTED SAC_FETCH_FULL
        SAC_FETCH_DROPPED SAC_FETCH_CANCELLED SAC_FETCH_INVALID
        SAC_FETCH_REJECT_LENGTH SAC_FETCH_REJECT_MAGIC SAC_FETCH_REJECT_VERSION
        SAC_FETCH_REJECT_CHECKSUM SAC_FETCH_REJECT_NAME SAC_FETCH_REJECT_MODEL SAC_FETCH_REJECT_SPAN
        SAC_FETCH_REJECT_CODEC SAC_FETCH_REJECT_PAYLOAD SAC_FETCH_TROUBLE_INTERNAL
        SAC_FETCH_TROUBLE_UNREACHABLE SAC_FETCH_TROUBLE_REFUSED SAC_FETCH_TROUBLE_PROTOCOL
        SAC_FETCH_TROUBLE_RESTING SAC_FETCH_TROUBLE_TOO_LARGE
        SAC_FETCH_TROUBLE_TIMEOUT SAC_FETCH_TROUBLE_BUSY SAC_KV_STORED SAC_KV_REMOVED
        SAC_KV_CLEARED SAC_KV_ON_DEVICE SAC_KV_ON_HOST);
    fields!(out: "sac_fetch_header" Header: magic version header_bytes layout_hash region_bytes
        instance_id queue_len num_entries entry_tokens num_frames frame_bytes block_bytes block_size
        num_layers kv_heads head_dim dtype num_events event_bytes device_wakes model_id
        device_offset plane_offset commands_offset completions_offset tokens_offset frames_offset
        events_offset _pad0);
    fields!(out: "sac_fetch_device_line" DeviceLine: commands_written completions_read acked_epoch
        closed heartbeat events_written events_dropped _pad0);
    fields!(out: "sac_fetch_plane_line" PlaneLine: epoch waiting commands_read completions_written
        heartbeat events_read pid breaker stores _pad0 _pad1);
    fields!(out: "sac_fetch_command" Command: id salt target op entry num_tokens chunk frame
        budget_us _pad0);
    fields!(out: "sac_fetch_completion" Completion: id op result detail num_chunks coded_bytes
        _pad0);
    fields!(out: "sac_kv_event" KvEvent: key parent_key salt kind tier adapter _pad0);
    out
}

#[test]
fn the_rust_mirror_matches_the_golden_dump() {
    assert_same(&dump_from_rust(), "crates/fetch/src/layout.rs differs from abi/fetch.h");
}
