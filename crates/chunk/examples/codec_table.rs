//! What each codec makes of KV, and how fast one core decodes it: one JSON object per codec.
//!
//! ```text
//! codec_table FILE --num-layers 30 --kv-heads 3 --head-dim 64 --dtype bf16
//! ```
//!
//! `FILE` has chunks of 256 tokens, one behind the other (bench/chunks/real_kv.py). Rates are of
//! one thread, in Gbit/s of the time that it ran, each chunk at its best of several passes: of KV
//! that goes in or comes out, and of the bytes that come out of the coder alone.

use std::time::{Duration, Instant};

use saccade_chunk::codec::{Coded, Scratch, encode};
use saccade_chunk::{CHUNK_TOKENS, Codec, Dtype, Geometry};

/// Passes go on for this long, and are at least [`MIN_PASSES`].
const MEASURE: Duration = Duration::from_secs(4);
const MIN_PASSES: u32 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (file, geometry) = arguments()?;
    let kv = std::fs::read(&file)?;
    if kv.is_empty() || kv.len() % geometry.bytes() != 0 {
        return Err(format!("{file} is no multiple of {} bytes", geometry.bytes()).into());
    }
    for codec in Codec::ALL {
        println!("{}", row(codec, &geometry, &kv)?);
    }
    Ok(())
}

fn arguments() -> Result<(String, Geometry), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("codec_table FILE --num-layers N ...")?;
    let mut geometry = Geometry {
        num_layers: 0,
        kv_heads: 0,
        head_dim: 0,
        num_tokens: CHUNK_TOKENS,
        dtype: Dtype::Bf16,
    };
    while let (Some(flag), Some(value)) = (arguments.next(), arguments.next()) {
        match flag.as_str() {
            "--num-layers" => geometry.num_layers = value.parse()?,
            "--kv-heads" => geometry.kv_heads = value.parse()?,
            "--head-dim" => geometry.head_dim = value.parse()?,
            "--dtype" => {
                geometry.dtype = match value.as_str() {
                    "bf16" => Dtype::Bf16,
                    "f16" => Dtype::F16,
                    "f32" => Dtype::F32,
                    "fp8" => Dtype::Fp8,
                    _ => {
                        return Err(format!("--dtype is {value}, not bf16, f16, f32 or fp8").into());
                    }
                };
            }
            _ => return Err(format!("there is no {flag}").into()),
        }
    }
    if geometry.bytes() == 0 {
        return Err("--num-layers, --kv-heads and --head-dim must be given".into());
    }
    Ok((file, geometry))
}

/// Seconds of all chunks, each at its fastest.
fn fastest(num_chunks: usize, mut one: impl FnMut(usize)) -> f64 {
    let (began, mut best, mut passes) = (Instant::now(), vec![f64::INFINITY; num_chunks], 0);
    while passes < MIN_PASSES || began.elapsed() < MEASURE {
        for (chunk, best) in best.iter_mut().enumerate() {
            let start = thread_seconds();
            one(chunk);
            *best = best.min(thread_seconds() - start);
        }
        passes += 1;
    }
    best.iter().sum()
}

/// Seconds that this thread ran.
fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time, and nothing else.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "the system has no clock of threads");
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

fn row(codec: Codec, g: &Geometry, kv: &[u8]) -> Result<String, Box<dyn std::error::Error>> {
    let mut scratch = Scratch::default();
    let chunks: Vec<&[u8]> = kv.chunks(g.bytes()).collect();
    let encode_s = {
        let mut out = Vec::new();
        fastest(chunks.len(), |chunk| {
            out.clear();
            encode(codec, g, chunks[chunk], &mut scratch, &mut out);
        })
    };
    let encoded: Vec<Vec<u8>> = chunks
        .iter()
        .map(|chunk| {
            let mut out = Vec::new();
            encode(codec, g, chunk, &mut scratch, &mut out);
            out
        })
        .collect();
    let coded: Vec<Coded<&Vec<u8>>> =
        encoded.iter().map(|bytes| Coded::new(codec, g, bytes)).collect::<Result<_, _>>()?;
    let mut back = vec![0; g.bytes()];
    let mut failed = None;
    let decode_s = fastest(coded.len(), |chunk| {
        for (plane, kv) in back.chunks_exact_mut(g.plane_bytes()).enumerate() {
            failed = failed.take().or(coded[chunk].decode_plane(plane, kv, &mut scratch).err());
        }
    });
    let coder_s = fastest(coded.len(), |chunk| {
        for plane in 0..g.num_planes() {
            failed = failed.take().or(coded[chunk].decode_symbols(plane, &mut scratch).err());
        }
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    let coded_bytes: usize = encoded.iter().map(Vec::len).sum();
    let gbps = |bytes: usize, seconds: f64| 8e-9 * bytes as f64 / seconds;
    let symbols = if codec == Codec::Raw { 0 } else { kv.len() / g.dtype.bytes() };
    Ok(format!(
        "{{\"codec\": \"{}\", \"ratio\": {:.3}, \"encode_gbps\": {:.2}, \"decode_gbps\": {:.2}, \
         \"coder_gbps\": {:.2}}}",
        codec.name(),
        kv.len() as f64 / coded_bytes as f64,
        gbps(kv.len(), encode_s),
        gbps(kv.len(), decode_s),
        gbps(symbols, coder_s),
    ))
}
