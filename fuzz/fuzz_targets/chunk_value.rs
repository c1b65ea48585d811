//! Values from a store: any bytes are rejected with a reason, or decode into the chunk's bytes. The
//! first byte chooses the codec of a payload behind a right header, or the bytes as they are; the
//! others the elements.

#![no_main]

use libfuzzer_sys::fuzz_target;
use saccade_chunk::codec::{self, Scratch};
use saccade_chunk::rans::{self, Kernel};
use saccade_chunk::{Codec, Dtype, Geometry, ModelId, Name, Value, open};

fuzz_target!(|data: &[u8]| {
    let Some(([choice, element], bytes)) = data.split_first_chunk() else { return };
    let dtype = [Dtype::Bf16, Dtype::F16, Dtype::F32][usize::from(element % 3)];
    let geometry = Geometry { num_layers: 1, kv_heads: 2, head_dim: 4, num_tokens: 9, dtype };
    let mut scratch = Scratch::default();
    let mut kv = vec![0; geometry.bytes()];
    match Codec::ALL.get(usize::from(choice % 8)) {
        Some(codec) => {
            let _ = codec::decode(*codec, &geometry, bytes, &mut scratch, &mut kv);
        }
        None if choice % 8 == 6 => {
            let outcomes: Vec<_> = Kernel::available()
                .into_iter()
                .map(|kernel| {
                    let mut symbols = vec![0; 200];
                    rans::decode_with(kernel, bytes, &mut symbols).map(|()| symbols)
                })
                .collect();
            assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]));
        }
        None => {
            let model = ModelId::new(b"", b"", &geometry);
            let value = Value { model, name: Name::root(&model, b""), first_token: 0, geometry };
            assert!(open(&value, bytes).is_err(), "128 bits of checksum were guessed");
        }
    }
});
