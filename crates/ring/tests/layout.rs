//! The layout of `abi/wire.h` is the same everywhere: as the C compiler sees it, in the committed
//! golden dump, in its hash, and in the Rust mirror.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use saccade_ring::layout::*;

fn abi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../abi")
}

fn golden() -> String {
    std::fs::read_to_string(abi().join("wire.layout.txt")).expect("the golden dump is committed")
}

/// Compiles and runs `abi/dump_layout.c`.
fn dump_from_c() -> String {
    let compilers = [std::env::var("CC").unwrap_or_default(), "cc".into(), "gcc".into()];
    let works = |cc: &&String| {
        !cc.is_empty()
            && Command::new(cc).arg("--version").output().is_ok_and(|o| o.status.success())
    };
    let compiler = compilers.iter().find(works).expect("a C compiler: $CC, cc or gcc");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dump_layout");
    let compiled = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .arg(&program)
        .arg(abi().join("dump_layout.c"))
        .output()
        .expect("the compiler ran a moment ago");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let dumped = Command::new(&program).output().expect("just compiled");
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
        "abi/wire.h changed: follow \"Changing the layout\" in abi/README.md",
    );
}

#[test]
fn the_hash_is_that_of_the_golden_dump() {
    let hash = golden().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let header = std::fs::read_to_string(abi().join("wire.h")).expect("the header is committed");
    let line = format!("#define SAC_LAYOUT_HASH UINT64_C({hash:#018x})");
    assert!(header.contains(&line), "abi/wire.h must say: {line}");
    assert_eq!(SAC_LAYOUT_HASH, hash, "crates/ring/src/layout.rs must say {hash:#018x}");
}

/// A constant that is added to the header must also be added to the dump.
#[test]
fn the_dump_names_every_constant() {
    let header = std::fs::read_to_string(abi().join("wire.h")).expect("the header is committed");
    let golden = golden();
    let no_data = ["SAC_LAYOUT_HASH", "SAC_STATIC_ASSERT", "SAC_HD", "SAC_PURE"];
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define "));
    let names = defined.filter_map(|rest| rest.split_whitespace().next());
    let mut count = 0;
    for name in names.filter(|name| name.starts_with("SAC_") && !name.contains('(')) {
        if !no_data.contains(&name) {
            let line = format!("constant {name} ");
            assert!(golden.contains(&line), "abi/dump_layout.c does not print {name}");
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

macro_rules! samples {
    ($out:ident: $($c:literal = $value:expr;)*) => {
        $(writeln!($out, "sample {} {}", $c, u64::from($value)).expect("a string");)*
    };
}

fn dump_from_rust() -> String {
    let mut out = String::new();
    constants!(out: SAC_MAGIC SAC_ABI_VERSION SAC_LINE_BYTES SAC_MAX_SLOTS SAC_SLOT_GRANULE
        SAC_MAX_FRONTENDS SAC_MAX_TOP_LOGPROBS SAC_MAX_LOGIT_BIAS SAC_MAX_STOP_IDS
        SAC_MAX_TENANTS SAC_MAX_TENANT_WEIGHT SAC_MAX_ADAPTERS
        SAC_MIN_OUT_RING_WORDS SAC_MAX_OUT_RING_WORDS SAC_ARENA_ALIGN_BYTES
        SAC_GRAMMAR_STACK SAC_GRAMMAR_PLAIN_BYTES SAC_GRAMMAR_PLAIN_PLACES
        SAC_MAX_GRAMMAR_WORDS SAC_GRAMMAR_EDGE_MASK SAC_GRAMMAR_PLAIN_SHIFT
        SAC_GRAMMAR_PLAIN_MASK SAC_GRAMMAR_FINAL SAC_GRAMMAR_DEFAULT SAC_GRAMMAR_NEED_SHIFT
        SAC_GRAMMAR_NO_PUSH SAC_MAX_FORCED_TOKENS
        SAC_STATE_EMPTY SAC_STATE_PREFILL_PENDING SAC_STATE_PREFILL_PROCESSING
        SAC_STATE_DECODE_PROCESSING SAC_STATE_DECODE_PAUSED SAC_STATE_DECODE_COMPLETED
        SAC_STATE_FETCH_PENDING SAC_STATE_FETCH_PROCESSING
        SAC_FINISH_NONE SAC_FINISH_STOP SAC_FINISH_LENGTH SAC_FINISH_CANCELLED SAC_FINISH_INVALID
        SAC_FINISH_STALE_EPOCH SAC_FINISH_ERROR
        SAC_PHASE_ABSENT SAC_PHASE_LOADING SAC_PHASE_READY SAC_PHASE_FAILED
        SAC_REQ_IGNORE_EOS SAC_REQ_LOGPROBS SAC_REQ_PROMPT_LOGPROBS SAC_REQ_EMBED
        SAC_REQ_KNOWN_FLAGS
        SAC_ROOF_ROWS SAC_KERNELS_NAME_BYTES
        SAC_NUM_FETCH_RESULTS SAC_NUM_FETCH_DETAILS
        SAC_FRONTEND_HEARTBEAT_MS SAC_FRONTEND_LOST_MS SAC_DOORBELL_CANCEL SAC_TICKET_MASK
        SAC_STATUS_STATE_SHIFT SAC_STATUS_FINISH_SHIFT SAC_STATUS_TICKET_SHIFT);
    fields!(out: "sac_region_header" RegionHeader: magic abi_version header_bytes layout_hash
        region_bytes instance_id num_slots num_frontends out_ring_words _pad0 device_offset
        stats_offset acks_offset wake_offset frontends_offset doorbells_offset cursors_offset
        status_offset descriptors_offset out_ring_offset arena_offset arena_bytes
        fetch_stats_offset roof_offset _pad1);
    fields!(out: "sac_device_line" DeviceLine: epoch phase heartbeat publish_count sleeping
        load_done_bytes load_total_bytes vocab_size max_model_len block_size num_blocks
        max_num_seqs max_num_batched_tokens kv_block_bytes process_start_ticks pid
        num_host_blocks vocab_hash grammar_words embedding_size num_adapters _pad0);
    fields!(out: "sac_device_roof" DeviceRoof: generation num_threads kernels packed_bytes
        huge_page_bytes step_weight_bytes row_flop read_bytes_per_s product_mflop_per_s _pad0);
    fields!(out: "sac_device_stats" DeviceStats: ticks steps prefill_tokens decode_tokens
        preemptions recomputed_tokens requests_accepted requests_rejected requests_finished
        requests_reclaimed reader_stalls step_ns host_wait_ns reader_wait_ns copy_wait_ns
        rotations blocks_down_eager blocks_down_urgent blocks_up prefix_query_tokens
        prefix_hit_tokens prefix_evictions num_running
        num_waiting num_paused blocks_used blocks_used_max last_step_tokens last_step_seqs
        num_rotated host_blocks_used host_blocks_used_max
        blocks_cached host_blocks_cached forced_tokens _pad0);
    fields!(out: "sac_fetch_stats" FetchStats: lookups loads stores rejections troubles looked_up_tokens lookups_skipped lookups_given_up requests_loaded loads_refused loads_given_up stores_dropped stores_evicted fetched_tokens loaded_bytes stored_bytes commands_lost planes_joined planes_broken num_aside num_loading frames_used num_frames stores_waiting plane_epoch plane_alive breaker _pad0);
    fields!(out: "sac_frontend_ack" FrontendAck: epoch lost _pad0);
    fields!(out: "sac_status" Status: word num_computed_tokens num_cached_tokens);
    fields!(out: "sac_wake" Wake: device_kick _pad0);
    fields!(out: "sac_frontend_line" FrontendLine: epoch waiting heartbeat
        prefix_generation roofs_asked _pad0);
    fields!(out: "sac_descriptor" Descriptor: sequence arena_extent device_epoch flags prompt_len
        max_tokens min_tokens num_logit_bias num_stop_ids num_top_logprobs temperature top_p min_p
        top_k repetition_penalty presence_penalty frequency_penalty priority seed cache_salt
        slo_ttft_s slo_tbt_s tenant tenant_weight grammar_words adapter _pad0);
    let word = 0xabcd_ef35_1234_5678;
    samples!(out:
        "sac_status_word(0xabcdef, 5, 3, 0x12345678)" =
            sac_status_word(0xab_cdef, 5, 3, 0x1234_5678);
        "sac_status_word(0xffffffff, 0xff, 0xff, 1)" = sac_status_word(u32::MAX, 0xff, 0xff, 1);
        "sac_status_count(UINT64_C(0xabcdef3512345678))" = sac_status_count(word);
        "sac_status_state(UINT64_C(0xabcdef3512345678))" = sac_status_state(word);
        "sac_status_finish(UINT64_C(0xabcdef3512345678))" = sac_status_finish(word);
        "sac_status_ticket(UINT64_C(0xabcdef3512345678))" = sac_status_ticket(word);
        "sac_doorbell(0xffffffff, 1)" = sac_doorbell(u32::MAX, 1);
        "sac_doorbell(0x123456, 0)" = sac_doorbell(0x12_3456, 0);
        "sac_doorbell_ticket(0x2468ad)" = sac_doorbell_ticket(0x24_68ad);
        "sac_record_stride(1, 5)" = sac_record_stride(1, 5);
        "sac_record_stride(2, 5)" = sac_record_stride(2, 5);
        "sac_record_stride(4, 0)" = sac_record_stride(4, 0);
        "sac_embedding_words(7)" = sac_embedding_words(7);
        "sac_embedding_words(0xffffffff)" = sac_embedding_words(u32::MAX);
        "sac_first_slot(4096, 3, 0)" = sac_first_slot(4096, 3, 0);
        "sac_first_slot(4096, 3, 1)" = sac_first_slot(4096, 3, 1);
        "sac_first_slot(4096, 3, 2)" = sac_first_slot(4096, 3, 2);
        "sac_first_slot(4096, 3, 3)" = sac_first_slot(4096, 3, 3);
        "sac_first_arena_byte(1048576, 3, 1)" = sac_first_arena_byte(1_048_576, 3, 1);
        "sac_first_arena_byte(1048576, 3, 3)" = sac_first_arena_byte(1_048_576, 3, 3););
    out
}

#[test]
fn the_rust_mirror_matches_the_golden_dump() {
    assert_same(&dump_from_rust(), "crates/ring/src/layout.rs differs from abi/wire.h");
}
