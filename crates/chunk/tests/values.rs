//! A value is believed only if all of it is what was asked for.

mod common;

use common::kv_like;
use saccade_chunk::codec::Scratch;
use saccade_chunk::{
    Codec, Dtype, Geometry, ModelId, Name, Rejection, Value, describe, open, seal,
};
use xxhash_rust::xxh3::Xxh3;

fn value() -> Value {
    let geometry =
        Geometry { num_layers: 2, kv_heads: 1, head_dim: 8, num_tokens: 16, dtype: Dtype::Bf16 };
    let model = ModelId::new(b"weights", b"settings", &geometry);
    let name = Name::root(&model, b"").next(&[1, 2, 3]);
    Value { model, name, first_token: 256, geometry }
}

fn sealed(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let kv = kv_like(&value.geometry, 1);
    seal(value, Codec::Lossless, &kv, &mut Scratch::default(), &mut bytes);
    bytes
}

fn rejection(expected: &Value, bytes: &[u8]) -> Option<Rejection> {
    open(expected, bytes).err()
}

#[test]
fn a_value_opens_as_what_it_is_and_decodes() {
    let value = value();
    let bytes = sealed(&value);
    let coded = open(&value, &bytes).unwrap();
    let kv = kv_like(&value.geometry, 1);
    let mut plane = vec![0; value.geometry.plane_bytes()];
    for (i, want) in kv.chunks(plane.len()).enumerate() {
        coded.decode_plane(i, &mut plane, &mut Scratch::default()).unwrap();
        assert_eq!(plane, want);
    }
}

#[test]
fn no_flipped_bit_passes() {
    let value = value();
    let bytes = sealed(&value);
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(rejection(&value, &flipped).is_some(), "bit {bit}");
    }
}

#[test]
fn no_other_length_passes() {
    let value = value();
    let bytes = sealed(&value);
    for length in 0..bytes.len() {
        assert_eq!(rejection(&value, &bytes[..length]), Some(Rejection::Length));
    }
    assert_eq!(rejection(&value, &[bytes, vec![0]].concat()), Some(Rejection::Length));
}

#[test]
fn another_chunk_is_told_from_the_one_asked_for() {
    let asked = value();
    let other = |change: fn(&mut Value)| {
        let mut value = asked;
        change(&mut value);
        rejection(&asked, &sealed(&value)).map(|rejection| rejection.kind())
    };
    assert_eq!(other(|_| {}), None);
    assert_eq!(other(|v| v.name = v.name.next(&[])), Some("name"));
    assert_eq!(
        other(|v| v.model = ModelId::new(b"others", b"settings", &v.geometry)),
        Some("model")
    );
    assert_eq!(other(|v| v.first_token = 0), Some("span"));
    assert_eq!(other(|v| v.geometry.num_tokens = 8), Some("span"));
    assert_eq!(other(|v| v.geometry.head_dim = 4), Some("span"));
    assert_eq!(other(|v| v.geometry.dtype = Dtype::F16), Some("span"));
}

#[test]
fn a_value_describes_itself() {
    for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::Fp8] {
        let mut value = value();
        value.geometry.dtype = dtype;
        for codec in Codec::ALL {
            let mut bytes = Vec::new();
            let kv = kv_like(&value.geometry, 1);
            seal(&value, codec, &kv, &mut Scratch::default(), &mut bytes);
            let (described, coded) = describe(&bytes).unwrap();
            assert_eq!((described, coded.codec()), (value, codec));
            assert_eq!(*coded.geometry(), value.geometry);
            let mut plane = vec![0; value.geometry.plane_bytes()];
            coded.decode_plane(0, &mut plane, &mut Scratch::default()).unwrap();
        }
    }
    let bytes = sealed(&value());
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(describe(&flipped).is_err(), "bit {bit}");
    }
    assert_eq!(describe(&bytes[..bytes.len() - 1]).err(), Some(Rejection::Length));
    assert_eq!(describe(&[0_u8; 112]).err(), Some(Rejection::Magic));
}

/// The header with other numbers, and the checksum that belongs to them.
fn forged(at: usize, with: &[u8]) -> Option<&'static str> {
    let mut bytes = sealed(&value());
    bytes[at..at + with.len()].copy_from_slice(with);
    let mut hash = Xxh3::new();
    hash.update(&bytes[..96]);
    hash.update(&bytes[112..]);
    bytes[96..112].copy_from_slice(&hash.digest128().to_le_bytes());
    describe(&bytes).err().map(|rejection| rejection.kind())
}

#[test]
fn a_header_takes_no_more_memory_than_it_may() {
    assert_eq!(forged(32, &[7; 32]), None, "describing expects no model");
    assert_eq!(forged(4, &[1, 0]), Some("version"));
    assert_eq!(forged(6, &[99]), Some("codec"));
    assert_eq!(forged(7, &[4]), Some("span"));
    for field in [12, 16, 20, 28] {
        assert_eq!(forged(field, &[0; 4]), Some("span"), "none at {field}");
        assert_eq!(forged(field, &[255; 4]), Some("span"), "4 Gi at {field}");
    }
    assert_eq!(forged(12, &[255; 12]), Some("span"), "a product that does not fit");
    // More planes than the directory has.
    assert_eq!(forged(12, &[0, 4, 0, 0]), Some("payload"));
}

#[test]
fn names_follow_tokens_order_model_and_salt() {
    let v = value();
    let root = Name::root(&v.model, b"");
    let name = root.next(&[1, 2]).next(&[3]);
    assert_eq!(name, root.next(&[1, 2]).next(&[3]));
    assert_eq!(name.to_string().len(), 64);
    let others = [
        root.next(&[1]).next(&[2, 3]),
        root.next(&[3]).next(&[1, 2]),
        root.next(&[1, 2]),
        Name::root(&v.model, b"salt").next(&[1, 2]).next(&[3]),
        Name::root(&ModelId::new(b"weights", b"", &v.geometry), b"").next(&[1, 2]).next(&[3]),
        Name::root(&ModelId::new(b"weightssettings", b"", &v.geometry), b"")
            .next(&[1, 2])
            .next(&[3]),
    ];
    assert!(others.iter().all(|other| *other != name));
}
