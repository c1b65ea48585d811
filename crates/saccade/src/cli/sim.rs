//! Flags of the emulated device.

use clap::{Args, ValueEnum};

/// What `--device sim:NAME` emulates beside the accelerator.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Emulated device (--device sim:NAME)")]
pub(crate) struct SimArgs {
    /// Model whose cost is emulated: a name from `saccade plan --list` [default: MODEL's shape]
    #[arg(long, value_name = "NAME", env = "SACCADE_SIM_MODEL")]
    pub sim_model: Option<String>,
    /// Where the scheduler lives: on the device (emulated: on the cores of --device-cores) or on
    /// the host; also for --device cuda
    #[arg(long, value_enum, default_value_t = SchedulerPlace::Device, env = "SACCADE_SCHEDULER")]
    pub scheduler: SchedulerPlace,
    /// With --scheduler host: CPU time of the host on the path of each step, microseconds
    #[arg(long, value_name = "US", default_value_t = 2500.0, value_parser = micros, env = "SACCADE_HOST_STEP_US")]
    pub host_step_us: f64,
    /// With --scheduler host: the same for each sequence of a step
    #[arg(long, value_name = "US", default_value_t = 5.0, value_parser = micros, env = "SACCADE_HOST_SEQ_US")]
    pub host_seq_us: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchedulerPlace {
    /// The tick runs beside the emulated device, on the cores of --device-cores
    Device,
    /// The tick runs on the cores of --frontend-cores, with a round trip per step
    Host,
}

/// 0 to a second.
fn micros(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(us) if (0.0..=1e6).contains(&us) => Ok(us),
        _ => Err(format!("{text:?} is not within 0 .. 1000000")),
    }
}
