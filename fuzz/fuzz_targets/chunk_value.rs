//! Values from a store: any bytes are rejected with a reason, or decode into the chunk's bytes. The
//! first byte chooses the codec of a payload behind a right header, or the bytes as they are; the
//! second the elements. A value whose header says anything, with a right checksum, describes itself
//! or is rejected, and never costs more memory than it may.

#![no_main]

use libfuzzer_sys::fuzz_target;
use saccade_chunk::codec::{self, Scratch};
use saccade_chunk::rans::{self, Kernel};
use saccade_chunk::{Codec, Dtype, Geometry, ModelId, Name, Value, deflate, describe, open, seal};
use xxhash_rust::xxh3::Xxh3;

fuzz_target!(|data: &[u8]| {
    let Some(([choice, element], bytes)) = data.split_first_chunk() else { return };
    let dtype = [Dtype::Bf16, Dtype::F16, Dtype::F32][usize::from(element % 3)];
    let geometry = Geometry { num_layers: 1, kv_heads: 2, head_dim: 4, num_tokens: 9, dtype };
    let mut scratch = Scratch::default();
    let mut kv = vec![0; geometry.bytes()];
    match Codec::ALL.get(usize::from(choice % 9)) {
        Some(codec) => {
            let _ = codec::decode(*codec, &geometry, bytes, &mut scratch, &mut kv);
        }
        None if choice % 9 == 6 => {
            let outcomes: Vec<_> = Kernel::available()
                .into_iter()
                .map(|kernel| {
                    let mut symbols = vec![0; 200];
                    rans::decode_with(kernel, bytes, &mut symbols).map(|()| symbols)
                })
                .collect();
            assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]));
        }
        None if choice % 9 == 8 => {
            let length = 8 * usize::from(*element);
            // As a code has them, or the same one in all places, so that its header is in all.
            deflate::streams(bytes).into_iter().for_each(|streams| any_streams(streams, length));
            any_streams([bytes; deflate::STREAMS], length);
        }
        None => {
            let model = ModelId::new(b"", b"", &geometry);
            let value = Value { model, name: Name::root(&model, b""), first_token: 0, geometry };
            assert!(open(&value, bytes).is_err(), "128 bits of checksum were guessed");
            assert!(describe(bytes).is_err(), "128 bits of checksum were guessed");
            any_header(&value, bytes, &mut scratch);
        }
    }
});

/// What is decoded in turns is what libdeflate decodes.
fn any_streams(streams: [&[u8]; deflate::STREAMS], length: usize) {
    let mut memory = deflate::Memory::default();
    let (mut turns, mut one_by_one) = (vec![0; length], vec![0; length]);
    if deflate::decode_in_turns(streams, &mut memory, &mut turns) {
        let done = deflate::decode_one_by_one(streams, &mut memory, &mut one_by_one);
        assert_eq!(done, Ok(()));
        assert!(turns == one_by_one);
    }
}

/// Writes the fuzzer's bytes over a right value's header and payload, and makes the checksum right.
fn any_header(value: &Value, bytes: &[u8], scratch: &mut Scratch) {
    let mut sealed = Vec::new();
    seal(value, Codec::Raw, &vec![0; value.geometry.bytes()], scratch, &mut sealed);
    // Codec and dtype; the shape. Magic, version and length stay.
    let Some((header, payload)) = bytes.split_first_chunk::<22>() else { return };
    sealed[6..8].copy_from_slice(&header[..2]);
    sealed[12..32].copy_from_slice(&header[2..]);
    sealed.truncate(112);
    sealed.extend(payload);
    sealed[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let mut hash = Xxh3::new();
    hash.update(&sealed[..96]);
    hash.update(&sealed[112..]);
    sealed[96..112].copy_from_slice(&hash.digest128().to_le_bytes());
    let Ok((described, coded)) = describe(&sealed) else { return };
    assert_eq!(open(&described, &sealed).map(|coded| coded.codec()).ok(), Some(coded.codec()));
    let plane_bytes = described.geometry.plane_bytes();
    assert!(described.geometry.bytes() <= 1 << 30);
    if plane_bytes <= 1 << 20 {
        let mut kv = vec![0; plane_bytes];
        for plane in 0..described.geometry.num_planes() {
            let _ = coded.decode_plane(plane, &mut kv, scratch);
        }
    }
}
