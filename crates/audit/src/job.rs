//! What one row of accounting says.

/// GPU time is counted in sevenths of a GPU, the share of one compute slice of a partitioned (MIG)
/// GPU, so that sums are exact.
pub const SLICES: u64 = 7;

/// Beyond these, a number is a mistake and not an allocation.
pub const MAX_MILLICORES: u64 = 1_000_000_000;
/// GPUs of one job.
pub const MAX_GPUS: u64 = 1_000_000;
/// A century, in seconds.
pub const MAX_SECONDS: u64 = 100 * 366 * 86_400;
/// Characters of a GPU type or a partition that are kept.
const MAX_NAME: usize = 64;

/// GPUs of one type in one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// The type as the scheduler names it, in lower case.
    pub model: String,
    /// Devices: GPUs, or MIG instances.
    pub count: u64,
    /// Compute slices of each: [`SLICES`] for a whole GPU.
    pub slices: u64,
}

impl Devices {
    /// `count` devices of a type; a MIG profile within its name (`1g.10gb`) says how many slices
    /// each has.
    pub fn new(model: &str, count: u64) -> Devices {
        let model = name(model).to_lowercase();
        let slices = mig_slices(&model).unwrap_or(SLICES);
        Devices { model, count, slices }
    }
}

/// An allocation of cores and GPUs for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Thousandths of a core.
    pub millicores: u64,
    /// By type; at least one device in all.
    pub devices: Vec<Devices>,
    /// How long it held them.
    pub seconds: u64,
    /// Partition or namespace.
    pub place: String,
}

impl Job {
    /// Devices of all types.
    pub fn count(&self) -> u64 {
        self.devices.iter().map(|d| d.count).sum()
    }
}

/// Why a row does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// A Slurm job's step: its job has a row of its own.
    Step,
    /// No GPU was allocated.
    NoGpu,
    /// It held its GPUs for no time.
    NeverRan,
    /// It holds a share of a GPU that others use at the same time (MPS, shards, time slices).
    SharedGpu,
    /// The header again, where files were joined.
    Header,
    /// An object of another kind (a service, a node).
    OtherKind,
}

impl Skip {
    /// For people.
    pub fn reason(self) -> &'static str {
        match self {
            Skip::Step => "step of a job that has its own row",
            Skip::NoGpu => "no GPU",
            Skip::NeverRan => "never ran",
            Skip::SharedGpu => "share of a GPU (MPS, shard, time slice)",
            Skip::Header => "repeated header",
            Skip::OtherKind => "not a pod",
        }
    }
}

/// Why a row could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reject {
    /// Longer than any row of accounting.
    TooLong,
    /// More or fewer fields than the header.
    FieldCount,
    /// The resources are not in the form `name=count,...`.
    Resources,
    /// The number of cores is missing, not a number, or absurd.
    Cores,
    /// The number of GPUs is not a number, or absurd.
    Gpus,
    /// The time is missing, not a time, or absurd.
    Time,
    /// Not JSON.
    Json,
    /// JSON, but not in the form of a pod.
    Shape,
}

impl Reject {
    /// For people.
    pub fn reason(self) -> &'static str {
        match self {
            Reject::TooLong => "row too long",
            Reject::FieldCount => "number of fields differs from the header's",
            Reject::Resources => "resources not readable",
            Reject::Cores => "number of cores missing or absurd",
            Reject::Gpus => "number of GPUs absurd",
            Reject::Time => "time missing or absurd",
            Reject::Json => "not JSON, or JSON that breaks off",
            Reject::Shape => "not in the form of a pod",
        }
    }
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// It counts.
    Job(Job),
    /// It does not, as expected.
    Skip(Skip),
    /// It could not be read.
    Reject(Reject),
}

/// A name as it is kept: bounded, without control characters.
pub fn name(raw: &str) -> String {
    raw.trim().chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()
}

/// Compute slices in a MIG profile: 3 in `a100-mig-3g.20gb`.
fn mig_slices(model: &str) -> Option<u64> {
    let bytes = model.as_bytes();
    (0..bytes.len().saturating_sub(3)).find_map(|i| {
        let starts = i == 0 || !bytes[i - 1].is_ascii_alphanumeric();
        let slices = u64::from(bytes[i].wrapping_sub(b'0'));
        let follows = bytes[i + 1] == b'g' && bytes[i + 2] == b'.' && bytes[i + 3].is_ascii_digit();
        (starts && follows && (1..=SLICES).contains(&slices)).then_some(slices)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mig_profiles_are_parts_of_a_gpu() {
        for (model, slices) in [
            ("h100", 7),
            ("1g.10gb", 1),
            ("a100_3g.20gb", 3),
            ("mig-7g.80gb", 7),
            ("rtx-a4000", 7),
            ("NVIDIA-A100-SXM4-80GB-MIG-2g.20gb", 2),
            ("9g.10gb", 7),
            ("1g.", 7),
        ] {
            assert_eq!(Devices::new(model, 1).slices, slices, "{model}");
        }
    }
}
