//! How many KV blocks there are, and how long a sequence may be.

use anyhow::{Context, bail, ensure};

use crate::cli::DeviceArgs;

/// Unless told otherwise, KV takes this share of the memory that is free, and no more than the cap.
const DEFAULT_SHARE: u64 = 4;
const DEFAULT_CAP_BYTES: u64 = 4 << 30;
/// Of --device null, whose blocks take no memory.
const NULL_BLOCKS: u64 = 1 << 20;
const GIB: f64 = (1u64 << 30) as f64;
/// Of KV on its way to host memory ahead of need.
const EAGER_BYTES: u64 = 16 << 20;
const EAGER_MIN_BLOCKS: u64 = 4;
const EAGER_MAX_BLOCKS: u64 = 256;

/// What the device plane gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KvBudget {
    pub num_blocks: u32,
    pub num_host_blocks: u32,
    pub eager_window: u32,
    pub max_model_len: u32,
}

/// Resolves the flags. `block_bytes`: bytes of one block, 0 if blocks take none. `model_len`:
/// longest sequence of the model. `wanted_len`: --max-model-len.
pub(crate) fn resolve(
    args: &DeviceArgs,
    block_bytes: u64,
    model_len: u32,
    wanted_len: Option<u32>,
) -> anyhow::Result<KvBudget> {
    if let Some(len) = wanted_len {
        ensure!(
            (2..=model_len).contains(&len),
            "--max-model-len {len} is outside 2 .. {model_len}, the model's own limit"
        );
    }
    let blocks = available_blocks(args, block_bytes)?;
    let block_size = u64::from(args.block_size.max(1));
    let longest = (blocks * block_size).min(u64::from(wanted_len.unwrap_or(model_len)));
    let needed = u64::from(wanted_len.unwrap_or(2)).div_ceil(block_size);
    if blocks < needed {
        bail!(
            "{blocks} KV blocks hold {} tokens, less than one sequence of {} needs: raise \
             --kv-cache-memory-bytes or lower --max-model-len",
            blocks * block_size,
            needed * block_size
        );
    }
    // Blocks beyond all seats at full length would be wasted memory.
    let useful = longest.div_ceil(block_size) * u64::from(args.max_num_seqs);
    let num_blocks =
        if args.num_gpu_blocks_override.is_some() { blocks } else { blocks.min(useful) };
    Ok(KvBudget {
        num_blocks: u32::try_from(num_blocks).context("too many KV blocks: at most 2^32 - 1")?,
        num_host_blocks: host_blocks(args, block_bytes, useful)?,
        eager_window: eager_window(block_bytes),
        max_model_len: u32::try_from(longest).context("sequence too long")?,
    })
}

/// Blocks of --kv-offloading-size; no more than all seats at full length.
fn host_blocks(args: &DeviceArgs, block_bytes: u64, useful: u64) -> anyhow::Result<u32> {
    let bytes = (args.kv_offloading_size * GIB) as u64;
    if bytes == 0 {
        return Ok(0);
    }
    let blocks = bytes.checked_div(block_bytes).unwrap_or(NULL_BLOCKS).min(useful);
    ensure!(
        blocks > 0,
        "--kv-offloading-size {} holds no KV block of {block_bytes} bytes",
        args.kv_offloading_size
    );
    u32::try_from(blocks).context("too many KV blocks of host memory: at most 2^32 - 1")
}

/// Background copies that a request in need may have to wait for: some milliseconds of them.
fn eager_window(block_bytes: u64) -> u32 {
    let blocks = EAGER_BYTES.checked_div(block_bytes).unwrap_or(EAGER_MAX_BLOCKS);
    blocks.clamp(EAGER_MIN_BLOCKS, EAGER_MAX_BLOCKS) as u32
}

fn available_blocks(args: &DeviceArgs, block_bytes: u64) -> anyhow::Result<u64> {
    if let Some(blocks) = args.num_gpu_blocks_override {
        return Ok(u64::from(blocks));
    }
    if block_bytes == 0 {
        return Ok(NULL_BLOCKS);
    }
    let bytes = match args.kv_cache_memory_bytes {
        Some(bytes) => bytes,
        None => (free_memory_bytes()? / DEFAULT_SHARE).min(DEFAULT_CAP_BYTES),
    };
    Ok(bytes / block_bytes)
}

/// Memory that can be had without swapping: the machine's, or the cgroup's if that is less.
fn free_memory_bytes() -> anyhow::Result<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let machine = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .context("/proc/meminfo has no MemAvailable")?
        * 1024;
    Ok(cgroup_free_bytes().map_or(machine, |limit| limit.min(machine)))
}

/// What the memory cgroup (v2, then v1) still allows, if it has a limit.
fn cgroup_free_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let v2 = (read("/sys/fs/cgroup/memory.max"), read("/sys/fs/cgroup/memory.current"));
    let v1 = (
        read("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        read("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    );
    [v2, v1].into_iter().find_map(|(limit, used)| Some(limit?.saturating_sub(used?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(flags: &[&str]) -> DeviceArgs {
        let cli = Cli::parse_from(["saccade", "serve"].iter().chain(flags));
        let Command::Serve(args) = cli.command else { panic!("serve") };
        args.device
    }

    #[test]
    fn length_follows_memory_unless_asked_for() {
        let a = args(&["--kv-cache-memory-bytes", "1000", "--max-num-seqs", "4"]);
        let budget = resolve(&a, 100, 4096, None).unwrap();
        assert_eq!((budget.num_blocks, budget.max_model_len), (10, 160));
        let error = resolve(&a, 100, 4096, Some(161)).unwrap_err().to_string();
        assert!(error.contains("--max-model-len"), "{error}");
        assert_eq!(resolve(&a, 100, 4096, Some(160)).unwrap().max_model_len, 160);
    }

    #[test]
    fn no_more_than_all_seats_can_use() {
        let a = args(&["--kv-cache-memory-bytes", "1m", "--max-num-seqs", "4"]);
        assert_eq!(resolve(&a, 100, 64, None).unwrap().num_blocks, 16);
    }

    #[test]
    fn host_memory_is_counted_in_blocks() {
        let resolve =
            |gib: &str, bytes| resolve(&args(&["--kv-offloading-size", gib]), bytes, 4096, None);
        assert_eq!(resolve("0", 1 << 20).unwrap().num_host_blocks, 0);
        assert_eq!(resolve("0.5", 1 << 20).unwrap().num_host_blocks, 512);
        assert_eq!(resolve("0.5", 1 << 20).unwrap().eager_window, 16);
        let error = resolve("0.0001", 1 << 20).unwrap_err().to_string();
        assert!(error.contains("--kv-offloading-size"), "{error}");
        for wrong in ["-1", "nan", "1e9"] {
            assert!(
                Cli::try_parse_from(["saccade", "serve", "--kv-offloading-size", wrong]).is_err()
            );
        }
    }

    #[test]
    fn longer_than_the_model_is_refused() {
        let error = resolve(&args(&[]), 0, 64, Some(65)).unwrap_err().to_string();
        assert!(error.contains("2 .. 64"), "{error}");
    }
}
