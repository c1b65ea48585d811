//! Parsers of untrusted weight metadata: the header of a safetensors file and the index of a
//! sharded checkpoint.

use std::collections::BTreeMap;
use std::ops::Range;

use safetensors::SafeTensors;

use crate::error::{ModelError, Result};
use crate::json::{Fields, parse_object};
use crate::limits::MAX_SHARDS;

/// Bytes of the length field in front of a safetensors header.
const LENGTH_BYTES: usize = 8;

/// One entry of a safetensors header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTensor {
    /// As stored; not necessarily a type that can be loaded.
    pub dtype: safetensors::Dtype,
    /// Row-major.
    pub shape: Vec<u64>,
    /// Position of the data in the file; inside of it.
    pub bytes: Range<usize>,
}

/// Reads the header of a safetensors file. `bytes` is the whole file, because its length is checked
/// against the header: the tensors must follow each other without gaps and end where it ends.
///
/// # Errors
/// [`ModelError::File`] naming `file`.
pub fn parse_safetensors_header(
    file: &str,
    bytes: &[u8],
) -> Result<BTreeMap<String, HeaderTensor>> {
    let (header_bytes, metadata) = SafeTensors::read_metadata(bytes)
        .map_err(|error| ModelError::file(file, format!("is not valid safetensors: {error}")))?;
    let start = LENGTH_BYTES + header_bytes;
    let entry = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let (from, to) = info.data_offsets;
        let tensor = HeaderTensor {
            dtype: info.dtype,
            shape: info.shape.iter().map(|&n| n as u64).collect(),
            bytes: start + from..start + to,
        };
        (name, tensor)
    };
    Ok(metadata.tensors().into_iter().map(entry).collect())
}

/// Reads the `weight_map` of model.safetensors.index.json: tensor name to shard file name.
///
/// # Errors
/// [`ModelError::Field`] for a shard name that is not a plain `*.safetensors` file name (a path
/// could leave the folder), or for more than [`MAX_SHARDS`] of them.
pub fn parse_weight_index(file: &str, text: &str) -> Result<BTreeMap<String, String>> {
    let map = parse_object(file, text)?;
    let root = Fields::new(file, "", &map);
    let weight_map = root.require("weight_map", root.object("weight_map")?)?;
    let fields = root.nested("weight_map", weight_map);
    let mut shards = BTreeMap::new();
    for tensor in fields.keys() {
        let shard = fields.require(tensor, fields.str(tensor)?)?;
        if !is_plain_shard_name(shard) {
            let problem = format!("is {shard:?}, must be the name of a *.safetensors file here");
            return Err(fields.error(tensor, problem));
        }
        shards.insert(tensor.to_owned(), shard.to_owned());
    }
    let count = shards.values().collect::<std::collections::BTreeSet<_>>().len();
    if count == 0 || count > MAX_SHARDS {
        let problem = format!("names {count} files, must be 1..={MAX_SHARDS}");
        return Err(root.error("weight_map", problem));
    }
    Ok(shards)
}

fn is_plain_shard_name(name: &str) -> bool {
    let has_separator = name.contains(['/', '\\', ':', '\0']);
    !has_separator && !name.contains("..") && name.len() <= 255 && name.ends_with(".safetensors")
}
