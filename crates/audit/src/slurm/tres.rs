//! Slurm's trackable resources: `cpu=16,gres/gpu:h100=2,gres/gpu=2,mem=64G`.

use crate::job::{Devices, MAX_GPUS, Reject};

/// GPUs whose type the accounting does not say.
pub const UNTYPED: &str = "(type not recorded)";

/// What a job had.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub cores: Option<u64>,
    pub devices: Vec<Devices>,
    /// It had shares of GPUs.
    pub shared: bool,
}

pub fn parse(text: &str) -> Result<Resources, Reject> {
    let mut resources = Resources::default();
    let mut total: Option<u64> = None;
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (name, count) = item.split_once('=').ok_or(Reject::Resources)?;
        match name.split_once(':') {
            None if name == "cpu" => resources.cores = Some(whole(count, Reject::Cores)?),
            None if name == "gres/gpu" => total = Some(gpus(count)?),
            Some(("gres/gpu", model)) => match gpus(count)? {
                0 => {}
                count => resources.devices.push(Devices::new(model, count)),
            },
            _ if is_share(name) => resources.shared = true,
            // Memory, billing, licences and the like.
            _ => {}
        }
    }
    // The total counts typed GPUs again; what exceeds them has no type.
    let typed: u64 = resources.devices.iter().map(|d| d.count).sum();
    let untyped = total.unwrap_or(0).saturating_sub(typed);
    if untyped > 0 {
        resources.devices.push(Devices::new(UNTYPED, untyped));
    }
    if typed.max(untyped) > MAX_GPUS {
        return Err(Reject::Gpus);
    }
    Ok(resources)
}

fn is_share(name: &str) -> bool {
    name.starts_with("gres/shard") || name.starts_with("gres/mps")
}

fn gpus(text: &str) -> Result<u64, Reject> {
    whole(text, Reject::Gpus).and_then(|n| if n > MAX_GPUS { Err(Reject::Gpus) } else { Ok(n) })
}

fn whole(text: &str, otherwise: Reject) -> Result<u64, Reject> {
    text.trim().parse().map_err(|_| otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_totals() {
        let one = parse("billing=1,cpu=8,gres/gpu=4,mem=1G").expect("readable");
        assert_eq!(one.devices, [Devices::new(UNTYPED, 4)]);
        let two = parse("cpu=8,gres/gpu:a100=2,gres/gpu:h100=1,gres/gpu=3").expect("readable");
        assert_eq!(two.devices, [Devices::new("a100", 2), Devices::new("h100", 1)]);
        let rest = parse("gres/gpu:a100=2,gres/gpu=3").expect("readable");
        assert_eq!(rest.devices, [Devices::new("a100", 2), Devices::new(UNTYPED, 1)]);
        let mig = parse("cpu=2,gres/gpu:1g.10gb=3,gres/gpu=3").expect("readable");
        assert_eq!((mig.devices[0].slices, mig.devices[0].count), (1, 3));
        assert!(parse("cpu=2,gres/shard=1").expect("readable").shared);
        assert_eq!(parse("").expect("readable"), Resources::default());
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["cpu", "cpu=-1", "cpu=1.5", "gres/gpu=x", "gres/gpu=18446744073709551616"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let sum = "gres/gpu:a=1000000,gres/gpu:b=1000000";
        assert_eq!(parse(sum), Err(Reject::Gpus));
    }
}
