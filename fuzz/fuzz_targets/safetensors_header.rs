//! Headers of weight files: whatever they claim, every tensor that comes out lies inside the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use saccade_model::parse_safetensors_header;

fuzz_target!(|data: &[u8]| {
    let Ok(tensors) = parse_safetensors_header("model.safetensors", data) else { return };
    for tensor in tensors.values() {
        assert!(tensor.bytes.start <= tensor.bytes.end && tensor.bytes.end <= data.len());
    }
});
