//! Flags of the device on a GPU.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Of `--device cuda`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "GPU (--device cuda)")]
pub(crate) struct CudaArgs {
    /// Library of the CUDA device [default: libsaccade_cuda.so beside this program]
    #[arg(long, value_name = "PATH", env = "SACCADE_CUDA_LIBRARY")]
    pub cuda_library: Option<PathBuf>,
    /// How the scheduler on the GPU launches steps; no effect with --scheduler host
    #[arg(long, value_enum, default_value_t = LaunchArg::Graphs, env = "SACCADE_CUDA_LAUNCH")]
    pub cuda_launch: LaunchArg,
    /// Which instructions compute the products with weights
    #[arg(long, value_enum, default_value_t = ProductsArg::Auto, env = "SACCADE_CUDA_PRODUCTS")]
    pub cuda_products: ProductsArg,
    /// Share of the GPU's memory that weights, workspace and KV blocks may take
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = share, env = "SACCADE_GPU_MEMORY_UTILIZATION")]
    pub gpu_memory_utilization: f64,
    /// How KV blocks move between GPU and host memory
    #[arg(long, value_enum, default_value_t = RotationArg::Vector, env = "SACCADE_CUDA_ROTATION")]
    pub cuda_rotation: RotationArg,
    /// Thread blocks that bring KV up to the GPU; a quarter as many, at least one, take it down
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16), env = "SACCADE_CUDA_ROTATION_BLOCKS")]
    pub cuda_rotation_blocks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LaunchArg {
    /// A device graph per step, fire-and-forget
    Graphs,
    /// One graph of WHILE and SWITCH nodes
    Loop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RotationArg {
    /// Vector loads and stores
    Vector,
    /// Bulk copies; needs a Hopper GPU or a later one
    Bulk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProductsArg {
    /// wgmma on a Hopper GPU, mma on others
    Auto,
    /// Warp by warp, on every GPU
    Mma,
    /// By warpgroups; needs a Hopper GPU
    Wgmma,
}

/// Above 0, at most 1.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("{text:?} is not above 0 and at most 1")),
    }
}
