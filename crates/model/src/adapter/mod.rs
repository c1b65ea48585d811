//! LoRA adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors.

mod config;
mod pattern;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::config::ModelConfig;
use crate::dtype::Dtype;
use crate::error::{ModelError, Result};
use crate::folder::{self, OpenOptions, read_text};
use crate::header::HeaderTensor;
use crate::limits::MAX_CONFIG_BYTES;
use crate::tensors::{ExpectedTensor, TensorRole, expected_tensors};
use crate::weights::Shard;

use config::ADAPTER_CONFIG_FILE;
pub use config::AdapterConfig;

const ADAPTER_FILE: &str = "adapter_model.safetensors";
/// What PEFT puts before the names of the model's modules.
const PREFIX: &str = "base_model.model.";
/// Of modules within a whole model; those of a decoder without its head have none.
const DECODER_PREFIX: &str = "model.";
const ENDINGS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];

/// Elements of a matrix, borrowed from the mapped file.
#[derive(Clone, Copy, Debug)]
pub struct AdapterMatrix<'a> {
    /// Element type of `data`.
    pub dtype: Dtype,
    /// Row-major, little-endian, of any alignment.
    pub data: &'a [u8],
}

/// What an adapter adds to one matrix: `y += scaling * B (A x)`.
#[derive(Clone, Copy, Debug)]
pub struct AdapterPair<'a> {
    /// `Q` to `Down`.
    pub role: TensorRole,
    /// Decoder layer.
    pub layer: u32,
    /// Rows of A, columns of B.
    pub rank: u32,
    /// Finite.
    pub scaling: f32,
    /// Columns of A.
    pub inputs: u64,
    /// Rows of B.
    pub outputs: u64,
    /// `[rank][inputs]`
    pub a: AdapterMatrix<'a>,
    /// `[outputs][rank]`
    pub b: AdapterMatrix<'a>,
}

/// An adapter, checked against the model that it is for.
pub struct Adapter {
    file: Shard,
    pairs: Vec<Pair>,
}

struct Pair {
    role: TensorRole,
    layer: u32,
    rank: u32,
    scaling: f32,
    inputs: u64,
    outputs: u64,
    a: (Dtype, Range<usize>),
    b: (Dtype, Range<usize>),
}

impl Adapter {
    /// The directory of an adapter: `adapter` itself, or the snapshot of a hub id.
    ///
    /// # Errors
    /// As [`crate::ModelFolder::open`].
    pub fn locate(adapter: &str, options: &OpenOptions) -> Result<PathBuf> {
        folder::locate(adapter, ADAPTER_CONFIG_FILE, options)
    }

    /// Reads the adapter in `root`, of ranks up to `max_rank`. The file is mapped and must not
    /// change while this value lives.
    ///
    /// # Errors
    /// Names the file, and the field or tensor that is not supported or does not fit the model.
    pub fn open(root: &Path, model: &ModelConfig, max_rank: u32) -> Result<Self> {
        let text = read_text(root, ADAPTER_CONFIG_FILE, MAX_CONFIG_BYTES)?;
        let config = AdapterConfig::parse(&text)?;
        if !root.join(ADAPTER_FILE).is_file() {
            let problem = "is missing; adapters are read from safetensors only";
            return Err(ModelError::file(&root.join(ADAPTER_FILE).display().to_string(), problem));
        }
        let file = Shard::open(root, ADAPTER_FILE)?;
        let expected = expected_tensors(model);
        let modules = modules_of(&expected);
        let halves = group(&file.tensors)?;
        let mut pairs = Vec::new();
        for (name, halves) in &halves {
            let reader = Reader { config: &config, max_rank, file: &file };
            pairs.extend(reader.pairs(name, halves, &modules)?);
        }
        if pairs.is_empty() {
            return Err(ModelError::file(ADAPTER_FILE, "has no tensors"));
        }
        Ok(Self { file, pairs })
    }

    /// All pairs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = AdapterPair<'_>> {
        let matrix = |(dtype, bytes): &(Dtype, Range<usize>)| AdapterMatrix {
            dtype: *dtype,
            data: &self.file.map[bytes.clone()],
        };
        self.pairs.iter().map(move |pair| AdapterPair {
            role: pair.role,
            layer: pair.layer,
            rank: pair.rank,
            scaling: pair.scaling,
            inputs: pair.inputs,
            outputs: pair.outputs,
            a: matrix(&pair.a),
            b: matrix(&pair.b),
        })
    }

    /// Gives `sink` all that the adapter changes, wherever it is: adapters that give the same
    /// compute the same.
    pub fn read_all(&self, mut sink: impl FnMut(&[u8])) {
        for pair in self.iter() {
            let dtypes = [pair.a.dtype.code(), pair.b.dtype.code()];
            for number in [pair.role.code(), pair.layer, pair.rank, pair.scaling.to_bits()] {
                sink(&number.to_le_bytes());
            }
            dtypes.iter().for_each(|dtype| sink(&dtype.to_le_bytes()));
            sink(pair.a.data);
            sink(pair.b.data);
        }
    }
}

/// The tensors that are a module's, in their order in the model; several where they are stored as
/// one.
type Modules<'a> = BTreeMap<&'a str, Vec<&'a ExpectedTensor>>;

fn modules_of(expected: &[ExpectedTensor]) -> Modules<'_> {
    let mut modules = Modules::new();
    for tensor in expected {
        if let Some(module) = tensor.name.strip_suffix(".weight") {
            modules.entry(module).or_default().push(tensor);
        }
    }
    modules
}

/// Names of A and B in the file.
type Halves<'a> = [Option<&'a str>; 2];

/// The tensors by the module that they are for.
fn group(tensors: &BTreeMap<String, HeaderTensor>) -> Result<BTreeMap<String, Halves<'_>>> {
    let mut halves: BTreeMap<String, Halves<'_>> = BTreeMap::new();
    for name in tensors.keys() {
        let module = name.strip_prefix(PREFIX).and_then(|rest| {
            let half = ENDINGS.iter().position(|ending| rest.ends_with(ending))?;
            Some((rest.strip_suffix(ENDINGS[half])?, half))
        });
        let Some((module, half)) = module else {
            let [a, b] = ENDINGS;
            let problem = format!("is not understood, must be {PREFIX}MODULE{a} or {b}");
            return Err(ModelError::tensor(ADAPTER_FILE, name, problem));
        };
        let bare = module.starts_with("layers.");
        let module = format!("{}{module}", if bare { DECODER_PREFIX } else { "" });
        if let Some(other) = halves.entry(module).or_default()[half].replace(name) {
            let problem = format!("is for the same matrix as {other}");
            return Err(ModelError::tensor(ADAPTER_FILE, name, problem));
        }
    }
    Ok(halves)
}

/// What the tensors of a module are read against.
struct Reader<'a> {
    config: &'a AdapterConfig,
    max_rank: u32,
    file: &'a Shard,
}

impl Reader<'_> {
    fn pairs(&self, module: &str, halves: &Halves<'_>, modules: &Modules<'_>) -> Result<Vec<Pair>> {
        let [a, b] = match halves {
            [Some(a), Some(b)] => [*a, *b],
            [Some(one), None] => return Err(wrong(one, "has no B beside it")),
            [None, Some(one)] => return Err(wrong(one, "has no A beside it")),
            [None, None] => return Ok(Vec::new()),
        };
        let parts = self.parts(module, a, modules)?;
        let (rank, max_rank) = (self.config.rank_of(module), self.max_rank);
        if rank > max_rank {
            let problem = format!("has rank {rank}, must be at most {max_rank} (--max-lora-rank)");
            return Err(wrong(a, problem));
        }
        let [first, ..] = parts[..] else { return Ok(Vec::new()) };
        let inputs = first.shape[1];
        let outputs = first.fused.map_or(first.shape[0], |(_, rows)| rows);
        let a = self.matrix(a, [u64::from(rank), inputs])?;
        let b = self.matrix(b, [outputs, u64::from(rank)])?;
        let row_bytes = b.0.bytes() as usize * rank as usize;
        let of_part = |part: &&ExpectedTensor| {
            let begin = part.fused.map_or(0, |(first_row, _)| first_row) as usize;
            let (begin, rows) = (b.1.start + begin * row_bytes, part.shape[0] as usize);
            Pair {
                role: part.role,
                layer: part.layer,
                rank,
                scaling: self.config.scaling_of(module),
                inputs,
                outputs: part.shape[0],
                a: a.clone(),
                b: (b.0, begin..begin + rows * row_bytes),
            }
        };
        Ok(parts.iter().map(of_part).collect())
    }

    /// The matrices that a module is.
    fn parts<'m>(
        &self,
        module: &str,
        tensor: &str,
        modules: &'m Modules<'_>,
    ) -> Result<&'m [&'m ExpectedTensor]> {
        let Some(parts) = modules.get(module) else {
            let known = if module.contains(".experts") { "experts take no adapters" } else { "" };
            let problem = match (known, module) {
                ("", "lm_head") => "is for the output projection, which takes no adapter".into(),
                ("", _) => format!("is for {module}, which the model does not have"),
                (known, _) => format!("is for {module}: {known}"),
            };
            return Err(wrong(tensor, problem));
        };
        let adapted = |part: &&ExpectedTensor| {
            (TensorRole::Q.code()..=TensorRole::Down.code()).contains(&part.role.code())
        };
        if !parts.iter().all(adapted) {
            let problem = format!(
                "is for {module}, which takes no adapter; q, k, v, o, gate, up and down of layers \
                 without experts do"
            );
            return Err(wrong(tensor, problem));
        }
        let bare = module.strip_prefix(DECODER_PREFIX).unwrap_or(module);
        if !self.config.has_target(module) && !self.config.has_target(bare) {
            let problem = format!("is for {module}, which target_modules does not name");
            return Err(wrong(tensor, problem));
        }
        Ok(parts)
    }

    /// Checks shape, element type and values.
    fn matrix(&self, name: &str, shape: [u64; 2]) -> Result<(Dtype, Range<usize>)> {
        let stored = &self.file.tensors[name];
        if stored.shape != shape {
            let problem = format!("has shape {:?}, expected {shape:?}", stored.shape);
            return Err(wrong(name, problem));
        }
        let Some(dtype) = Dtype::from_safetensors(stored.dtype) else {
            let problem = format!("has dtype {:?}, expected F32, BF16 or F16", stored.dtype);
            return Err(wrong(name, problem));
        };
        if !is_finite(dtype, &self.file.map[stored.bytes.clone()]) {
            return Err(wrong(name, "has values that are not finite"));
        }
        Ok((dtype, stored.bytes.clone()))
    }
}

/// Whether no exponent has all of its bits.
fn is_finite(dtype: Dtype, bytes: &[u8]) -> bool {
    let half =
        |mask: u16| bytes.chunks_exact(2).all(|b| u16::from_le_bytes([b[0], b[1]]) & mask != mask);
    match dtype {
        Dtype::Bf16 => half(0x7f80),
        Dtype::F16 => half(0x7c00),
        Dtype::F32 => {
            bytes.chunks_exact(4).all(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_finite())
        }
    }
}

fn wrong(tensor: &str, problem: impl Into<String>) -> ModelError {
    ModelError::tensor(ADAPTER_FILE, tensor, problem)
}
