//! The numbers from which something is worth telling. Each constant says where it comes from: a
//! paper, a practice, or our own judgement (so marked).

/// Cores for each GPU below which slow-downs were measured: "ratios below 4-8 cores per GPU risk
/// measurable slowdown" (Chung et al. 2026, arXiv 2603.22774, §II-B).
pub const CORES_PER_GPU_WARN: f64 = 4.0;
/// Processes that an engine of several GPUs runs besides one for each GPU: "vLLM V1 requires at
/// least (#GPUs + 2) concurrent processes" (Chung et al. 2026, §IV-B).
pub const PROCESSES_BESIDES_GPUS: usize = 2;

/// Share of periods throttled. A used-up quota stops everything for up to a period of 100 ms, some
/// seven decode steps of 14 ms (Blink, arXiv 2604.07609, table 1). Our judgement.
pub const THROTTLED_WARN: f64 = 0.05;
/// The alert CPUThrottlingHigh of kubernetes-mixin fires at 25 %.
pub const THROTTLED_TROUBLE: f64 = 0.25;

/// Share of the time in which the engine wanted a core and had none. Our judgement: at 5 % a step
/// of 14 ms grows by 0.7 ms, and all ranks wait for the latest (Chung et al. 2026, §V-A).
pub const WAIT_SHARE_WARN: f64 = 0.05;
/// Our judgement: one in four moments lost.
pub const WAIT_SHARE_TROUBLE: f64 = 0.25;
/// Waiting that counts at all, in seconds per second: a sleeper that wakes up now and then has a
/// large share of nearly nothing. Our judgement.
pub const WAIT_MIN: f64 = 0.05;

/// Pressure on cores (share of time in which some task waited). Our judgement.
pub const PRESSURE_WARN: f64 = 0.10;
/// Our judgement.
pub const PRESSURE_TROUBLE: f64 = 0.50;

/// Involuntary switches for each second on a core. A thread alone on its core has nearly none; with
/// a rival, slices of the kernel's default of about 3 ms give some 300. Our judgement.
pub const PREEMPTED_WARN: f64 = 50.0;

/// A thread that wants a core at least this much of the time is active. Our judgement.
pub const ACTIVE: f64 = 0.10;
/// A thread on a core for this share of the time that hardly ever waits for anything spins or
/// computes. Our judgement.
pub const SPIN_RUN: f64 = 0.90;
/// Voluntary switches per second below which a thread "hardly ever waits". Our judgement.
pub const SPIN_VOLUNTARY: f64 = 20.0;

/// Threads of an idle pool, per usable core, from which the pool will hurt under load. Our
/// judgement: pools sized by the machine's cores instead of the quota exceed it many times.
pub const IDLE_POOL_RATIO: f64 = 2.0;

/// Cores that others use, out of the ones that the engine may use. Our judgement.
pub const NEIGHBOURS_WARN: f64 = 0.10;
/// Only where the cores are nearly full do neighbours take time; else they share caches and memory
/// only. Our judgement.
pub const CORES_FULL: f64 = 0.80;
/// Others' use from which shared caches matter even where cores are free: with 6 cores to
/// itself an engine still completed 17 % fewer requests (Blink, table 3). Our judgement.
pub const NEIGHBOURS_NOTE: f64 = 0.25;

/// Share of time taken by the hypervisor. Our judgement.
pub const STEAL_WARN: f64 = 0.05;
/// Our judgement.
pub const STEAL_TROUBLE: f64 = 0.20;

/// Share of memory on nodes other than the cores'. Our judgement.
pub const REMOTE_MEMORY_WARN: f64 = 0.25;
/// Bytes below which it does not matter where memory is. Our judgement.
pub const REMOTE_MEMORY_MIN_BYTES: u64 = 256 << 20;

/// Loads of the last-level cache that miss: 7 % in isolation, 43 % next to 12 threads of pbzip2
/// (Blink, table 1).
pub const LLC_MISS_NOTE: f64 = 0.40;
