//! Element types of weights, and what `--dtype` selects.

use std::fmt;
use std::str::FromStr;

/// An element type that weights can be stored and computed in. The numbers are `SAC_DTYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Dtype {
    /// IEEE binary32.
    F32 = 0,
    /// bfloat16.
    Bf16 = 1,
    /// IEEE binary16.
    F16 = 2,
}

impl Dtype {
    /// The `SAC_DTYPE_*` number.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// The name in config.json, with or without `torch.`.
    pub(crate) fn from_config(name: &str) -> Option<Self> {
        match name.strip_prefix("torch.").unwrap_or(name) {
            "float32" | "float" => Some(Self::F32),
            "bfloat16" => Some(Self::Bf16),
            "float16" | "half" => Some(Self::F16),
            _ => None,
        }
    }

    /// The name in a safetensors header; `None` for every other type.
    pub(crate) fn from_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        match dtype {
            safetensors::Dtype::F32 => Some(Self::F32),
            safetensors::Dtype::BF16 => Some(Self::Bf16),
            safetensors::Dtype::F16 => Some(Self::F16),
            _ => None,
        }
    }
}

/// An element type that weights are stored in. The numbers are `SAC_DTYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TensorDtype {
    /// IEEE binary32.
    F32 = 0,
    /// bfloat16.
    Bf16 = 1,
    /// IEEE binary16.
    F16 = 2,
    /// 8 bits, e4m3 without infinities; a weight is the element times a scale.
    Fp8 = 4,
}

impl TensorDtype {
    /// The `SAC_DTYPE_*` number.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        self.plain().map_or(1, Dtype::bytes)
    }

    /// The same type where it needs no scales.
    pub fn plain(self) -> Option<Dtype> {
        match self {
            Self::F32 => Some(Dtype::F32),
            Self::Bf16 => Some(Dtype::Bf16),
            Self::F16 => Some(Dtype::F16),
            Self::Fp8 => None,
        }
    }

    /// The name in a safetensors header; `None` for what this program does not load.
    pub(crate) fn from_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        match dtype {
            safetensors::Dtype::F8_E4M3 => Some(Self::Fp8),
            plain => Dtype::from_safetensors(plain).map(Self::from),
        }
    }
}

impl From<Dtype> for TensorDtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::Bf16 => Self::Bf16,
            Dtype::F16 => Self::F16,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
        })
    }
}

/// The value of `--dtype`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DtypeChoice {
    /// What config.json says; float32 stays float32.
    #[default]
    Auto,
    /// The given one.
    Fixed(Dtype),
}

impl DtypeChoice {
    /// Every value that parses, as `--help` shows them.
    pub const NAMES: [&str; 7] =
        ["auto", "bfloat16", "bf16", "half", "float16", "float", "float32"];

    /// The type to compute in. `config`: what config.json says, if it does; `stored`: the type of
    /// the embedding in the weight files, if there are any. With neither it is float32.
    pub fn resolve(self, config: Option<Dtype>, stored: Option<Dtype>) -> Dtype {
        match self {
            Self::Fixed(dtype) => dtype,
            Self::Auto => config.or(stored).unwrap_or(Dtype::F32),
        }
    }
}

impl FromStr for DtypeChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "bfloat16" | "bf16" => Ok(Self::Fixed(Dtype::Bf16)),
            "half" | "float16" => Ok(Self::Fixed(Dtype::F16)),
            "float" | "float32" => Ok(Self::Fixed(Dtype::F32)),
            _ => Err(format!("dtype {name:?} is not one of {}", Self::NAMES.join(", "))),
        }
    }
}

impl fmt::Display for DtypeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(dtype) => dtype.fmt(f),
        }
    }
}
