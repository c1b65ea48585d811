//! The weights of a model folder, memory-mapped: safetensors, in one file or in shards. Nothing is
//! handed out before every tensor has been found with the right shape and element type.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use memmap2::{Advice, Mmap, UncheckedAdvice};

use crate::config::{CONFIG_FILE, ModelConfig};
use crate::dtype::{Dtype, TensorDtype};
use crate::error::{ModelError, Result};
use crate::folder::{ModelFolder, read_text};
use crate::fp8::Fp8Scales;
use crate::header::{HeaderTensor, parse_safetensors_header, parse_weight_index};
use crate::kv_scales::is_kv_scale;
use crate::limits::MAX_INDEX_BYTES;
use crate::scales::{ScaleDtype, ScalesRef, shapes_of};
use crate::tensors::{EMBED_NAME, ExpectedTensor, LM_HEAD_NAME, TensorRole, expected_tensors};

/// Of the decoder's tensors within a whole model.
const DECODER_PREFIX: &str = "model.";
const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";
/// Tensors of old checkpoints that are never read.
const IGNORED_SUFFIX: &str = "rotary_emb.inv_freq";
/// What follows the name of a matrix in e4m3 in that of its scales.
const SCALE_SUFFIXES: [&str; 2] = ["_scale", "_scale_inv"];
/// Scales of activations, which keep their types here.
const OTHER_SCALES: [&str; 3] = [".input_scale", ".activation_scale", ".output_scale"];
/// What [`Weights::identify`] reads of each tensor.
const SAMPLE_BYTES: usize = 4096;

/// One tensor of the model, borrowed from the mapped file.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    /// What it is for; its number is `role.code()`.
    pub role: TensorRole,
    /// Decoder layer; 0 for the tensors outside of the layers.
    pub layer: u32,
    /// Expert of the layer; 0 for the tensors outside of experts.
    pub expert: u32,
    /// Element type of `data`.
    pub dtype: TensorDtype,
    /// 1 for a vector.
    pub rows: u64,
    /// Elements of one row.
    pub cols: u64,
    /// `rows * cols` elements, row-major, little-endian, of any alignment.
    pub data: &'a [u8],
    /// Of matrices in e4m3.
    pub scales: Option<ScalesRef<'a>>,
}

/// All tensors of a model, checked against its configuration.
pub struct Weights {
    num_layers: u32,
    shards: Vec<Shard>,
    entries: Vec<Entry>,
    unexpected: Vec<String>,
}

/// One mapped file.
pub(crate) struct Shard {
    name: String,
    file: File,
    pub(crate) map: Mmap,
    pub(crate) tensors: BTreeMap<String, HeaderTensor>,
}

struct Entry {
    role: TensorRole,
    layer: u32,
    expert: u32,
    dtype: TensorDtype,
    rows: u64,
    cols: u64,
    shard: usize,
    bytes: Range<usize>,
    scales: Option<ScalesEntry>,
}

/// The tensor with the scales of an entry.
struct ScalesEntry {
    dtype: ScaleDtype,
    layout: Fp8Scales,
    first_row: u64,
    shard: usize,
    bytes: Range<usize>,
}

/// A tensor of one element, and the file that it is in.
pub(crate) struct Number<'a> {
    pub value: f32,
    pub file: &'a str,
}

impl Weights {
    /// Maps the weight files of `folder` and checks every tensor that `config` needs.
    ///
    /// The files are mapped, not read: they must not be changed or shortened while this value
    /// lives (a shortened file ends the process with a bus error when it is touched).
    ///
    /// # Errors
    /// Names the file, and the tensor with what was found and what was expected.
    pub fn open(folder: &ModelFolder, config: &ModelConfig) -> Result<Self> {
        Self::open_dir(folder.root(), config)
    }

    fn open_dir(root: &Path, config: &ModelConfig) -> Result<Self> {
        let mut store = Store::open(root)?;
        store.name_as_whole();
        let expected = expected_tensors(config);
        let entries = expected
            .iter()
            .map(|tensor| store.find(tensor, config))
            .collect::<Result<Vec<Entry>>>()?;
        if config.tie_word_embeddings {
            store.check_tied()?;
        }
        let unexpected = store.unexpected(&expected, config.fp8.is_some());
        Ok(Self { num_layers: config.num_layers, shards: store.shards, entries, unexpected })
    }

    /// The tensor of that name, of whatever shape, as a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<Number<'_>>> {
        let found = self
            .shards
            .iter()
            .find_map(|shard| shard.tensors.get(name).map(|stored| (shard, stored)));
        let Some((shard, stored)) = found else { return Ok(None) };
        let bytes = &shard.map[stored.bytes.clone()];
        let value = match (Dtype::from_safetensors(stored.dtype), bytes) {
            (Some(Dtype::F32), &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Some(Dtype::Bf16), &[a, b]) => f32::from_le_bytes([0, 0, a, b]),
            (Some(Dtype::F16), &[a, b]) => f16_value(u16::from_le_bytes([a, b])),
            _ => {
                let (dtype, shape) = (stored.dtype, &stored.shape);
                let problem = format!("is {dtype:?} {shape:?}, expected one F32, BF16 or F16");
                return Err(ModelError::tensor(&shard.name, name, problem));
            }
        };
        Ok(Some(Number { value, file: &shard.name }))
    }

    /// The tensors in loading order: embedding, final norm, output projection, then layer by layer.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TensorRef<'_>> {
        self.entries.iter().map(|entry| TensorRef {
            role: entry.role,
            layer: entry.layer,
            expert: entry.expert,
            dtype: entry.dtype,
            rows: entry.rows,
            cols: entry.cols,
            data: &self.shards[entry.shard].map[entry.bytes.clone()],
            scales: entry.scales.as_ref().map(|scales| self.scales_of(scales)),
        })
    }

    fn scales_of(&self, entry: &ScalesEntry) -> ScalesRef<'_> {
        ScalesRef {
            data: &self.shards[entry.shard].map[entry.bytes.clone()],
            dtype: entry.dtype,
            layout: entry.layout,
            first_row: entry.first_row,
        }
    }

    /// For each layer, the roles whose matrices are all in e4m3, as bits by [`TensorRole::code`];
    /// the output projection counts as one of layer 0.
    pub fn fp8_roles(&self) -> Vec<u32> {
        let mut fp8 = vec![0; self.num_layers as usize];
        let mut others = fp8.clone();
        for entry in &self.entries {
            let roles = if entry.dtype == TensorDtype::Fp8 { &mut fp8 } else { &mut others };
            roles[entry.layer as usize] |= 1 << entry.role.code();
        }
        fp8.iter().zip(others).map(|(fp8, others)| fp8 & !others).collect()
    }

    /// Gives a tensor's pages back to the system, once it has been copied: the system may keep or
    /// drop what the page cache holds of the files, and it no longer counts as this process's.
    pub fn release(&self, tensor: &TensorRef<'_>) {
        let start = tensor.data.as_ptr() as usize;
        for shard in &self.shards {
            let Some(offset) = start.checked_sub(shard.map.as_ptr() as usize) else { continue };
            if offset + tensor.data.len() > shard.map.len() {
                continue;
            }
            let (advice, len) = (UncheckedAdvice::DontNeed, tensor.data.len());
            // SAFETY: the map is shared with the file and never written: a page that was dropped
            // reads the same from the file again.
            // Only a hint: where it fails, pages stay.
            unsafe { shard.map.unchecked_advise_range(advice, offset, len) }.ok();
        }
    }

    /// Gives `sink` everything that identifies the tensors, wherever the folder is: of each file
    /// its length and modification time; of each tensor its role, type, shape and place in its
    /// file, and 4 KiB from its middle; the same of its scales.
    ///
    /// Files of another training, of another format or changed in place differ in this. It does
    /// not tell apart files of the same length and time, to the nanosecond, whose tensors
    /// differ only outside the samples. Reading all of them would take as long as what
    /// recognising them saves.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn identify(&self, mut sink: impl FnMut(&[u8])) -> io::Result<()> {
        for shard in &self.shards {
            let metadata = shard.file.metadata()?;
            sink(&metadata.len().to_le_bytes());
            sink(&metadata.mtime().to_le_bytes());
            sink(&metadata.mtime_nsec().to_le_bytes());
        }
        let mut sample = [0; SAMPLE_BYTES];
        for entry in &self.entries {
            let (role, dtype) = (entry.role.code(), entry.dtype.code());
            for number in [role, entry.layer, entry.expert, dtype, entry.shard as u32] {
                sink(&number.to_le_bytes());
            }
            for number in [entry.rows, entry.cols, entry.bytes.start as u64] {
                sink(&number.to_le_bytes());
            }
            sink(self.sample(entry.shard, &entry.bytes, &mut sample)?);
            let Some(scales) = &entry.scales else { continue };
            for number in [scales.layout as u64, scales.dtype as u64, scales.first_row] {
                sink(&number.to_le_bytes());
            }
            for number in [scales.shard as u64, scales.bytes.start as u64] {
                sink(&number.to_le_bytes());
            }
            sink(self.sample(scales.shard, &scales.bytes, &mut sample)?);
        }
        Ok(())
    }

    /// Up to 4 KiB from the middle of a tensor. Not through the map, which reads ahead some
    /// megabytes at each place.
    fn sample<'a>(
        &self,
        shard: usize,
        bytes: &Range<usize>,
        sample: &'a mut [u8; SAMPLE_BYTES],
    ) -> io::Result<&'a [u8]> {
        let len = bytes.len().min(SAMPLE_BYTES);
        let middle = bytes.start + (bytes.len() - len) / 2;
        let sample = &mut sample[..len];
        self.shards[shard].file.read_exact_at(sample, middle as u64)?;
        Ok(sample)
    }

    /// Gives `sink` what the tensors hold, wherever and in whatever files they are: of each its
    /// role, type and shape, all of its bytes, and its scales. Equal weights on two machines give
    /// the same.
    pub fn read_all(&self, mut sink: impl FnMut(&[u8])) {
        for tensor in self.iter() {
            for number in [tensor.role.code(), tensor.layer, tensor.expert, tensor.dtype.code()] {
                sink(&number.to_le_bytes());
            }
            for number in [tensor.rows, tensor.cols] {
                sink(&number.to_le_bytes());
            }
            sink(tensor.data);
            if let Some(scales) = &tensor.scales {
                scales.expand(tensor.rows, tensor.cols).iter().for_each(|s| sink(&s.to_le_bytes()));
            }
            self.release(&tensor);
        }
    }

    /// Bytes of all tensors of [`Weights::iter`], for a progress bar.
    pub fn total_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes.len() as u64).sum()
    }

    /// Element type of the embedding as stored: what `--dtype auto` means when config.json is
    /// silent.
    pub fn stored_dtype(&self) -> Option<Dtype> {
        self.entries.first().and_then(|entry| entry.dtype.plain())
    }

    /// Names of tensors that are in the files and not in the model. Worth a warning: the checkpoint
    /// may be of another architecture.
    pub fn unexpected(&self) -> &[String] {
        &self.unexpected
    }
}

/// The mapped files before anything is known about the model.
struct Store {
    shards: Vec<Shard>,
    /// Tensor name to index in `shards`.
    home: BTreeMap<String, usize>,
    /// The file to blame for a tensor that is nowhere.
    index: &'static str,
}

impl Store {
    /// One file wins over an index, as in HF.
    fn open(root: &Path) -> Result<Self> {
        if root.join(SINGLE_FILE).is_file() {
            let shard = Shard::open(root, SINGLE_FILE)?;
            let home = shard.tensors.keys().map(|name| (name.clone(), 0)).collect();
            return Ok(Self { shards: vec![shard], home, index: SINGLE_FILE });
        }
        if !root.join(INDEX_FILE).is_file() {
            return Err(no_weights(root));
        }
        let weight_map =
            parse_weight_index(INDEX_FILE, &read_text(root, INDEX_FILE, MAX_INDEX_BYTES)?)?;
        Self::open_sharded(root, weight_map)
    }

    fn open_sharded(root: &Path, weight_map: BTreeMap<String, String>) -> Result<Self> {
        let names: BTreeSet<&String> = weight_map.values().collect();
        let shards =
            names.iter().map(|name| Shard::open(root, name)).collect::<Result<Vec<_>>>()?;
        let number: BTreeMap<&String, usize> =
            names.into_iter().enumerate().map(|(i, name)| (name, i)).collect();
        let mut home = BTreeMap::new();
        for (tensor, file) in &weight_map {
            let shard = number[file];
            if !shards[shard].tensors.contains_key(tensor) {
                let problem = format!("is not there, though {INDEX_FILE} says so");
                return Err(ModelError::tensor(file, tensor, problem));
            }
            home.insert(tensor.clone(), shard);
        }
        Ok(Self { shards, home, index: INDEX_FILE })
    }

    /// A decoder that was saved without its head, as models for embeddings are, has the names that
    /// its tensors have within a whole model.
    fn name_as_whole(&mut self) {
        let bare = |name: &str| format!("{DECODER_PREFIX}{name}") == EMBED_NAME;
        if self.home.contains_key(EMBED_NAME) || !self.home.keys().any(|name| bare(name)) {
            return;
        }
        let whole = |name: String| match name.as_str() {
            LM_HEAD_NAME => name,
            _ => format!("{DECODER_PREFIX}{name}"),
        };
        let home = std::mem::take(&mut self.home);
        self.home = home.into_iter().map(|(name, shard)| (whole(name), shard)).collect();
        for shard in &mut self.shards {
            let tensors = std::mem::take(&mut shard.tensors);
            shard.tensors = tensors.into_iter().map(|(name, at)| (whole(name), at)).collect();
        }
    }

    /// Finds one tensor and checks shape, element type and scales.
    fn find(&self, expected: &ExpectedTensor, config: &ModelConfig) -> Result<Entry> {
        let mut name = expected.name.as_str();
        if config.tie_word_embeddings
            && expected.role == TensorRole::Embed
            && !self.home.contains_key(name)
        {
            // Some tied checkpoints keep the one copy under the other name.
            name = LM_HEAD_NAME;
        }
        let Some(&shard) = self.home.get(name) else { return Err(self.missing(expected)) };
        let file = &self.shards[shard];
        let stored = &file.tensors[name];
        let stored_shape = stored_shape(expected);
        if stored.shape != stored_shape {
            let problem = format!("has shape {:?}, expected {stored_shape:?}", stored.shape);
            return Err(ModelError::tensor(&file.name, name, problem));
        }
        let dtype = dtype_of(stored, expected, config)
            .map_err(|problem| ModelError::tensor(&file.name, name, problem))?;
        let scales = match (dtype, config.fp8) {
            (TensorDtype::Fp8, Some(layout)) => Some(self.find_scales(name, expected, layout)?),
            _ => None,
        };
        let (rows, cols) = match expected.shape[..] {
            [rows, cols] => (rows, cols),
            _ => (1, expected.shape.iter().product()),
        };
        // Shape and bytes of a stored tensor agree (header.rs), so the part lies within it.
        let bytes = |elements: u64| (elements * dtype.bytes()) as usize;
        let first_row = expected.fused.map_or(0, |(first_row, _)| first_row);
        let start = stored.bytes.start + bytes(first_row * cols);
        Ok(Entry {
            role: expected.role,
            layer: expected.layer,
            expert: expected.expert,
            dtype,
            rows,
            cols,
            shard,
            bytes: start..start + bytes(rows * cols),
            scales,
        })
    }

    /// Finds the scales of the tensor `name` and checks their shape and element type.
    fn find_scales(
        &self,
        name: &str,
        expected: &ExpectedTensor,
        layout: Fp8Scales,
    ) -> Result<ScalesEntry> {
        let names = SCALE_SUFFIXES.map(|suffix| format!("{name}{suffix}"));
        let Some(scales) = names.iter().find(|name| self.home.contains_key(*name)) else {
            let problem =
                format!("has dtype F8_E4M3, but neither {} is there", names.join(" nor "));
            return Err(ModelError::tensor(&self.shards[self.home[name]].name, name, problem));
        };
        let shard = self.home[scales];
        let file = &self.shards[shard];
        let stored = &file.tensors[scales];
        let wrong = |problem| ModelError::tensor(&file.name, scales, problem);
        let shape = stored_shape(expected);
        let allowed = shapes_of(layout, shape[0], shape[1]);
        if !allowed.contains(&stored.shape) {
            let allowed: Vec<String> = allowed.iter().map(|shape| format!("{shape:?}")).collect();
            let (shape, allowed) = (&stored.shape, allowed.join(" or "));
            return Err(wrong(format!("has shape {shape:?}, expected {allowed}")));
        }
        let dtype = ScaleDtype::from_safetensors(stored.dtype)
            .ok_or_else(|| wrong(format!("has dtype {:?}, expected F32 or BF16", stored.dtype)))?;
        let first_row = expected.fused.map_or(0, |(first_row, _)| first_row);
        Ok(ScalesEntry { dtype, layout, first_row, shard, bytes: stored.bytes.clone() })
    }

    fn missing(&self, expected: &ExpectedTensor) -> ModelError {
        let hint = match expected.role {
            TensorRole::LmHead => format!(" although {CONFIG_FILE} has tie_word_embeddings=false"),
            _ => String::new(),
        };
        let problem = format!("is missing{hint}, expected with shape {:?}", stored_shape(expected));
        ModelError::tensor(self.index, &expected.name, problem)
    }

    /// A tied checkpoint may hold both copies; then they must be equal (versions of transformers
    /// disagree about which one counts if they are not).
    fn check_tied(&self) -> Result<()> {
        let data = |name: &str| {
            let shard = &self.shards[*self.home.get(name)?];
            Some((shard, &shard.map[shard.tensors[name].bytes.clone()]))
        };
        match (data(EMBED_NAME), data(LM_HEAD_NAME)) {
            (Some((_, embed)), Some((shard, head))) if embed != head => Err(ModelError::tensor(
                &shard.name,
                LM_HEAD_NAME,
                format!(
                    "differs from {EMBED_NAME} although {CONFIG_FILE} has tie_word_embeddings=true"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// With `scaled`, scales are no surprise.
    fn unexpected(&self, expected: &[ExpectedTensor], scaled: bool) -> Vec<String> {
        let mut known: BTreeSet<&str> = expected.iter().map(|t| t.name.as_str()).collect();
        known.insert(LM_HEAD_NAME); // with tied embeddings a second copy, checked above
        let is_scale = |name: &str| {
            let of_weights = SCALE_SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(suffix));
            of_weights.clone().any(|name| known.contains(name))
                || OTHER_SCALES.iter().any(|suffix| name.ends_with(suffix))
        };
        let in_shards = self.shards.iter().flat_map(|shard| shard.tensors.keys());
        let expected = |name: &str| {
            known.contains(name)
                || name.ends_with(IGNORED_SUFFIX)
                || is_kv_scale(name)
                || (scaled && is_scale(name))
        };
        in_shards
            .filter(|name| !expected(name))
            .cloned()
            .collect::<BTreeSet<String>>()
            .into_iter()
            .collect()
    }
}

/// The type of a tensor's elements, or what is wrong with it.
fn dtype_of(
    stored: &HeaderTensor,
    expected: &ExpectedTensor,
    config: &ModelConfig,
) -> std::result::Result<TensorDtype, String> {
    let found = stored.dtype;
    match TensorDtype::from_safetensors(found) {
        Some(TensorDtype::Fp8) if config.fp8.is_none() => Err(format!(
            "has dtype {found:?}, but {CONFIG_FILE} has no quantization_config; expected F32, \
             BF16 or F16"
        )),
        Some(TensorDtype::Fp8) if expected.shape.len() != 2 => {
            Err(format!("is a vector with dtype {found:?}, expected F32, BF16 or F16"))
        }
        Some(dtype) => Ok(dtype),
        None if config.fp8.is_some() => {
            Err(format!("has dtype {found:?}, expected F32, BF16, F16 or F8_E4M3"))
        }
        None => Err(format!("has dtype {found:?}, expected F32, BF16 or F16")),
    }
}

/// Of half precision; infinities count as NaN.
fn f16_value(bits: u16) -> f32 {
    /// By which the exponents' biases differ, 127 and 15.
    const BIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
    if bits & 0x7c00 == 0x7c00 {
        return f32::NAN;
    }
    let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * BIAS;
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// The shape of the tensor that `expected` is, or is a part of.
fn stored_shape(expected: &ExpectedTensor) -> Vec<u64> {
    let mut shape = expected.shape.clone();
    if let Some((_, rows)) = expected.fused {
        shape[0] = rows;
    }
    shape
}

impl Shard {
    pub(crate) fn open(root: &Path, name: &str) -> Result<Self> {
        let path = root.join(name);
        let io = |source| ModelError::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        // SAFETY: the mapping is read-only and private to this value. We cannot check that no
        // process shortens the file meanwhile; `Weights::open` asks for it.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let tensors = parse_safetensors_header(name, &map)?;
        // Read-ahead is a hint: a kernel that refuses it only loads more slowly.
        map.advise(Advice::Sequential).ok();
        Ok(Self { name: name.to_owned(), file, map, tensors })
    }
}

fn no_weights(root: &Path) -> ModelError {
    let has_pickle = std::fs::read_dir(root).is_ok_and(|entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.into_string().ok()).any(|name| is_pickle(&name))
    });
    let hint = if has_pickle { "; pickled weights are never loaded, convert them" } else { "" };
    let problem = format!("is missing, and so is {INDEX_FILE}{hint}");
    ModelError::file(&root.join(SINGLE_FILE).display().to_string(), problem)
}

fn is_pickle(name: &str) -> bool {
    [".bin", ".pt", ".pth"].iter().any(|suffix| name.ends_with(suffix))
}
