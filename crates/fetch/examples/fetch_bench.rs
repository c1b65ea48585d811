//! How fast each stage of the fetch plane is on one core, and how fast they are together.
//!
//! ```text
//! fetch_bench [--shape llama-3-8b | small | LAYERS,HEADS,DIM,DTYPE] [--codecs NAME,...]
//!             [--modes NAME,...] [--chunks N] [--seconds S] [--cores CPUS] [--stages false]
//! ```
//!
//! Rates are Gbit/s of KV. Stages are timed on one thread, the fastest of several passes. The
//! pipeline loads a prompt of N chunks again and again from a store in this process, as a device
//! does: the network costs a copy of a reference. `first chunk` and `prompt` are medians from the
//! first command on. KV is made up (tests/common); real KV codes differently, see bench/chunks.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Device, Place, kv_like, limits, load, names, tokens};
use saccade_chunk::codec::Scratch;
use saccade_chunk::{Codec, Dtype, Geometry, Name, Value, open, seal};
use saccade_fetch::layout::*;
use saccade_fetch::{FetchMode, Limits, Plane};
use saccade_host::CpuSet;
use saccade_store::{Guarded, Key, Store};

type Failure = Box<dyn std::error::Error>;

/// Passes of a stage, at least.
const MIN_PASSES: u32 = 3;
/// Of each row of tokens that is hashed.
const HASHED_CHUNKS: u32 = 32;

struct Arguments {
    geometry: Geometry,
    codecs: Vec<Codec>,
    modes: Vec<FetchMode>,
    num_chunks: u32,
    time: Duration,
    cores: Option<CpuSet>,
    stages: bool,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse()?;
    let g = &arguments.geometry;
    println!(
        "chunk: {:.2} MiB, plane: {} KiB",
        g.bytes() as f64 / 1048576.0,
        g.plane_bytes() / 1024
    );
    if arguments.stages {
        stages(&arguments)?;
    }
    println!(
        "\n{:<14}{:<22}{:>9}{:>14}{:>12}{:>10}{:>10}",
        "codec", "mode", "Gbit/s", "first chunk", "prompt", "coder %", "place %"
    );
    for codec in &arguments.codecs {
        for mode in &arguments.modes {
            pipeline(&arguments, *codec, *mode)?;
        }
    }
    Ok(())
}

impl Arguments {
    fn parse() -> Result<Arguments, Failure> {
        let mut parsed = Arguments {
            geometry: shape("small")?,
            codecs: Codec::ALL.to_vec(),
            modes: FetchMode::ALL.to_vec(),
            num_chunks: 8,
            time: Duration::from_secs(2),
            cores: None,
            stages: true,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(flag) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--shape" => parsed.geometry = shape(&value)?,
                "--codecs" => {
                    parsed.codecs = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                "--modes" => {
                    parsed.modes = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                "--chunks" => parsed.num_chunks = value.parse()?,
                "--seconds" => parsed.time = Duration::from_secs_f64(value.parse()?),
                "--cores" => parsed.cores = Some(CpuSet::from_flag(&value)?),
                "--stages" => parsed.stages = value.parse()?,
                _ => return Err(format!("there is no {flag}").into()),
            }
        }
        Ok(parsed)
    }
}

fn shape(name: &str) -> Result<Geometry, Failure> {
    match name {
        "llama-3-8b" => return Ok(common::geometry(32, 8, 128, Dtype::Bf16)),
        "small" => return Ok(common::geometry(30, 3, 64, Dtype::Bf16)),
        _ => {}
    }
    let [layers, heads, dim, dtype] = name.split(',').collect::<Vec<_>>()[..] else {
        return Err(format!("--shape is {name}, not LAYERS,HEADS,DIM,DTYPE").into());
    };
    let dtype = match dtype {
        "bf16" => Dtype::Bf16,
        "f16" => Dtype::F16,
        "f32" => Dtype::F32,
        _ => return Err(format!("dtype is {dtype}, not bf16, f16 or f32").into()),
    };
    Ok(common::geometry(layers.parse()?, heads.parse()?, dim.parse()?, dtype))
}

/// Gbit/s of `bytes` in the fastest pass.
fn rate(time: Duration, bytes: usize, mut pass: impl FnMut()) -> f64 {
    let (began, mut best, mut passes) = (Instant::now(), f64::INFINITY, 0);
    while passes < MIN_PASSES || began.elapsed() < time / 4 {
        let start = Instant::now();
        pass();
        best = best.min(start.elapsed().as_secs_f64());
        passes += 1;
    }
    8e-9 * bytes as f64 / best
}

fn value_of(g: &Geometry, name: Name, chunk: usize) -> Value {
    Value { model: limits(*g, 16).model_id, name, first_token: 256 * chunk as u32, geometry: *g }
}

fn stages(arguments: &Arguments) -> Result<(), Failure> {
    let g = &arguments.geometry;
    let kv = kv_like(g, 1);
    let model = limits(*g, 16).model_id;
    let row = tokens(1, HASHED_CHUNKS);
    let hashed = rate(arguments.time, 1, || drop(names(&model, 0, &row)));
    let rows_s = hashed / 8e-9 * f64::from(HASHED_CHUNKS) * 256.0;
    println!("hash of names: {:.0} million tokens/s\n", rows_s / 1e6);
    println!(
        "{:<14}{:>8}{:>10}{:>10}{:>10}{:>10}",
        "codec", "ratio", "encode", "check", "coder", "place"
    );
    for codec in &arguments.codecs {
        let value = value_of(g, Name::root(&model, b""), 0);
        let (mut sealed, mut scratch) = (Vec::new(), Scratch::default());
        let encode = rate(arguments.time, kv.len(), || {
            sealed.clear();
            seal(&value, *codec, &kv, &mut scratch, &mut sealed);
        });
        let check = rate(arguments.time, kv.len(), || {
            std::hint::black_box(open(&value, &sealed).is_ok());
        });
        let coded = open(&value, &sealed)?;
        let mut scratches: Vec<_> = (0..g.num_planes()).map(|_| Scratch::default()).collect();
        let coder = rate(arguments.time, kv.len(), || {
            for (plane, scratch) in scratches.iter_mut().enumerate() {
                coded.decode_symbols(plane, scratch).expect("just encoded");
            }
        });
        let mut plane_kv = vec![0; g.plane_bytes()];
        let place = rate(arguments.time, kv.len(), || {
            for (plane, scratch) in scratches.iter().enumerate() {
                coded.place(plane, &mut plane_kv, scratch).expect("just encoded");
            }
        });
        let ratio = kv.len() as f64 / sealed.len() as f64;
        println!(
            "{:<14}{ratio:>8.2}{encode:>10.1}{check:>10.1}{coder:>10.1}{place:>10.1}",
            codec.name()
        );
    }
    Ok(())
}

/// A store in this process that holds a prompt.
fn filled_store(arguments: &Arguments, codec: Codec) -> Result<Guarded, Failure> {
    let (g, n) = (&arguments.geometry, arguments.num_chunks);
    let store = Store::open(&"memory:".parse()?)?;
    let guarded = Guarded::new(store, saccade_store::Limits::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let model = limits(*g, 16).model_id;
    let mut scratch = Scratch::default();
    for (chunk, name) in names(&model, 0, &tokens(1, n)).into_iter().enumerate() {
        let mut sealed = Vec::new();
        let kv = kv_like(g, chunk as u64 % 2);
        seal(&value_of(g, name, chunk), codec, &kv, &mut scratch, &mut sealed);
        runtime.block_on(guarded.put(&Key { model, salt: 0, name }, sealed.into()))?;
    }
    Ok(guarded)
}

fn pipeline(arguments: &Arguments, codec: Codec, mode: FetchMode) -> Result<(), Failure> {
    let (g, n) = (&arguments.geometry, arguments.num_chunks);
    let place = Place::in_memory();
    let shape = Limits {
        num_frames: n,
        queue_len: (2 * n).next_power_of_two(),
        entry_tokens: 256 * n,
        ..limits(*g, 16)
    };
    let mut device = Device::new(&place, &shape);
    let mut config = place.config(codec);
    config.mode = mode;
    config.cores.clone_from(&arguments.cores);
    let plane = Plane::start(config, Arc::new(filled_store(arguments, codec)?))?;
    device.wait_for_plane();
    device.set_row(0, &tokens(1, n));
    let (mut firsts, mut prompts) = (Vec::new(), Vec::new());
    prompt(&mut device, n)?; // frames are touched
    let (before, began) = (plane.stats(), Instant::now());
    while began.elapsed() < arguments.time || prompts.len() < 3 {
        let (first, all) = prompt(&mut device, n)?;
        firsts.push(first);
        prompts.push(all);
    }
    let (after, wall) = (plane.stats(), began.elapsed());
    let bytes = (after.kv_bytes_loaded - before.kv_bytes_loaded) as f64;
    let busy =
        |after: u64, before: u64| 100.0 * 1e-9 * (after - before) as f64 / wall.as_secs_f64();
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        format!("{:.2} ms", 1e3 * times[times.len() / 2].as_secs_f64())
    };
    println!(
        "{:<14}{:<22}{:>9.1}{:>14}{:>12}{:>10.0}{:>10.0}",
        codec.name(),
        mode.name(),
        8e-9 * bytes / wall.as_secs_f64(),
        median(&mut firsts),
        median(&mut prompts),
        busy(after.coder_ns, before.coder_ns),
        busy(after.place_ns, before.place_ns),
    );
    Ok(())
}

/// Loads all chunks of the prompt: time until the first, and until the last.
fn prompt(device: &mut Device, n: u32) -> Result<(Duration, Duration), Failure> {
    let (began, mut first, mut done) = (Instant::now(), None, 0);
    for chunk in 0..n {
        device.send(load(0, 0, chunk, chunk));
    }
    while done < n {
        for completion in device.poll() {
            if completion.result != SAC_FETCH_DONE {
                return Err(format!("a chunk did not come: {completion:?}").into());
            }
            first = first.or_else(|| Some(began.elapsed()));
            done += 1;
        }
        // As a tick would look.
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok((first.unwrap_or_default(), began.elapsed()))
}
