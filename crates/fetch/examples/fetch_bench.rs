//! How fast each stage of the fetch plane is on one core, and how fast they are together.
//!
//! ```text
//! fetch_bench [--shape llama-3-8b | small | LAYERS,HEADS,DIM,DTYPE] [--codecs NAME,...]
//!             [--modes NAME,...] [--chunks N] [--seconds S] [--cores CPUS] [--stages false]
//!             [--store URL] [--kv FILE] [--json FILE]
//! ```
//!
//! Rates are Gbit/s of KV. Stages are timed on one thread, the fastest of several passes; `network`
//! brings all values of the prompt at once, and drops them. The pipeline loads a prompt of N
//! chunks, as a device does, from the store at URL; by default that is in this process, where the
//! network costs a copy of a reference. First prompt after prompt: `first chunk` and `prompt` are
//! medians from the first command on. Then N chunks are always on their way, for its rate and for
//! `KV/CPU`, GB of KV for each second of processor time that the threads of the plane took, in the
//! kernel too; the thread that plays the device is left out.
//!
//! KV is made up (tests/common) unless FILE has chunks of this shape (bench/chunks/real_kv.py wrote
//! it): real KV codes differently. JSON: one object per row, appended.

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Device, Place, kv_like, limits, load, names, tokens};
use saccade_chunk::codec::Scratch;
use saccade_chunk::{Codec, Dtype, Geometry, Name, Value, open, seal};
use saccade_fetch::layout::*;
use saccade_fetch::{FetchMode, Limits, Plane};
use saccade_host::CpuSet;
use saccade_store::{Guarded, Key, Store, StoreUrl};
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

/// Passes of a stage, at least.
const MIN_PASSES: u32 = 3;
/// Of each row of tokens that is hashed.
const HASHED_CHUNKS: u32 = 32;

/// As a tick would look.
const POLL_EVERY: Duration = Duration::from_micros(50);
/// Chunks on their way from the store at once, as the plane's own permits allow.
const GETS: usize = 8;

struct Arguments {
    store: StoreUrl,
    kv: Option<Vec<u8>>,
    json: Option<PathBuf>,
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
        "\n{:<14}{:<22}{:>9}{:>14}{:>12}{:>10}{:>10}{:>9}",
        "codec", "mode", "Gbit/s", "first chunk", "prompt", "coder %", "place %", "KV/CPU"
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
            store: "memory:".parse()?,
            kv: None,
            json: None,
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
                "--store" => parsed.store = value.parse()?,
                "--kv" => parsed.kv = Some(std::fs::read(&value)?),
                "--json" => parsed.json = Some(value.into()),
                "--stages" => parsed.stages = value.parse()?,
                _ => return Err(format!("there is no {flag}").into()),
            }
        }
        let (bytes, chunk) = (parsed.kv.as_ref().map_or(0, Vec::len), parsed.geometry.bytes());
        if parsed.kv.is_some() && (bytes == 0 || !bytes.is_multiple_of(chunk)) {
            return Err(format!("--kv has {bytes} bytes, not chunks of {chunk}").into());
        }
        Ok(parsed)
    }

    /// KV of a chunk, in chunk order.
    fn chunk(&self, index: usize) -> Vec<u8> {
        match &self.kv {
            Some(kv) => {
                let chunks: Vec<_> = kv.chunks_exact(self.geometry.bytes()).collect();
                chunks[index % chunks.len()].to_vec()
            }
            None => kv_like(&self.geometry, index as u64 % 2),
        }
    }

    /// Appends a row.
    fn write(&self, row: &serde_json::Value) -> Result<(), Failure> {
        let Some(path) = &self.json else { return Ok(()) };
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(writeln!(file, "{row}")?)
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
        "fp8" => Dtype::Fp8,
        _ => return Err(format!("dtype is {dtype}, not bf16, f16, f32 or fp8").into()),
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
    let kv = arguments.chunk(1);
    let model = limits(*g, 16).model_id;
    let row = tokens(1, HASHED_CHUNKS);
    let hashed = rate(arguments.time, 1, || drop(names(&model, 0, &row)));
    let rows_s = hashed / 8e-9 * f64::from(HASHED_CHUNKS) * 256.0;
    println!("hash of names: {:.0} million tokens/s\n", rows_s / 1e6);
    println!(
        "{:<14}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "codec", "ratio", "encode", "check", "coder", "place", "network"
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
        let network = network(arguments, *codec)?;
        let name = codec.name();
        println!(
            "{name:<14}{ratio:>8.2}{encode:>10.1}{check:>10.1}{coder:>10.1}{place:>10.1}{:>10.1}",
            network
        );
        arguments.write(&json!({
            "what": "stages",
            "codec": name,
            "ratio": ratio,
            "encode_gbps": encode,
            "check_gbps": check,
            "coder_gbps": coder,
            "place_gbps": place,
            "network_gbps": network,
        }))?;
    }
    Ok(())
}

/// A store that holds a prompt, and the names of its chunks.
fn filled_store(arguments: &Arguments, codec: Codec) -> Result<(Guarded, Vec<Key>), Failure> {
    let (g, n) = (&arguments.geometry, arguments.num_chunks);
    let guarded = Guarded::new(Store::open(&arguments.store)?, saccade_store::Limits::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let model = limits(*g, 16).model_id;
    let (mut scratch, mut keys) = (Scratch::default(), Vec::new());
    for (chunk, name) in names(&model, 0, &tokens(1, n)).into_iter().enumerate() {
        let mut sealed = Vec::new();
        let kv = arguments.chunk(chunk);
        seal(&value_of(g, name, chunk), codec, &kv, &mut scratch, &mut sealed);
        let key = Key { model, salt: 0, name };
        // A value that is there stays; it may be of another codec.
        runtime.block_on(guarded.remove(&[key]))?;
        runtime.block_on(guarded.put(&key, sealed.into()))?;
        keys.push(key);
    }
    // Connections belong to the runtime that made them.
    Ok((Guarded::new(Store::open(&arguments.store)?, saccade_store::Limits::default()), keys))
}

/// Gbit/s of KV at which all values of the prompt arrive.
fn network(arguments: &Arguments, codec: Codec) -> Result<f64, Failure> {
    let (store, keys) = filled_store(arguments, codec)?;
    if arguments.store == "memory:".parse()? {
        return Ok(f64::INFINITY);
    }
    let (store, bytes) = (Arc::new(store), arguments.geometry.bytes() * keys.len());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let most = 2 * arguments.geometry.bytes();
    let get = |key: Key| {
        let store = store.clone();
        runtime.spawn(async move { store.get(&key, most).await.is_ok_and(|value| value.is_some()) })
    };
    let mut whole = true;
    let rate = rate(arguments.time, bytes, || {
        for some in keys.chunks(GETS) {
            let calls: Vec<_> = some.iter().map(|key| get(*key)).collect();
            for call in calls {
                whole &= runtime.block_on(call).unwrap_or(false);
            }
        }
    });
    if whole { Ok(rate) } else { Err("a value did not come".into()) }
}

/// Processor time so far of all threads but this one, seconds.
fn cpu_s() -> f64 {
    let of = |who| {
        // SAFETY: plain data that the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let seconds = |t: libc::timeval| t.tv_sec as f64 + 1e-6 * t.tv_usec as f64;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) - of(libc::RUSAGE_THREAD)
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
    let plane = Plane::start(config, Arc::new(filled_store(arguments, codec)?.0))?;
    device.wait_for_plane();
    device.set_row(0, &tokens(1, n));
    let (mut firsts, mut prompts) = (Vec::new(), Vec::new());
    prompt(&mut device, n)?; // frames are touched
    let began = Instant::now();
    while began.elapsed() < arguments.time / 2 || prompts.len() < 3 {
        let (first, all) = prompt(&mut device, n)?;
        firsts.push(first);
        prompts.push(all);
    }
    let (before, began, cpu) = (plane.stats(), Instant::now(), cpu_s());
    stream(&mut device, n, arguments.time)?;
    let (after, wall, cpu) = (plane.stats(), began.elapsed(), cpu_s() - cpu);
    let bytes = (after.kv_bytes_loaded - before.kv_bytes_loaded) as f64;
    let busy =
        |after: u64, before: u64| 100.0 * 1e-9 * (after - before) as f64 / wall.as_secs_f64();
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        format!("{:.2} ms", 1e3 * times[times.len() / 2].as_secs_f64())
    };
    let gbps = 8e-9 * bytes / wall.as_secs_f64();
    let per_cpu = 1e-9 * bytes / cpu;
    println!(
        "{:<14}{:<22}{gbps:>9.1}{:>14}{:>12}{:>10.0}{:>10.0}{per_cpu:>9.2}",
        codec.name(),
        mode.name(),
        median(&mut firsts),
        median(&mut prompts),
        busy(after.coder_ns, before.coder_ns),
        busy(after.place_ns, before.place_ns),
    );
    arguments.write(&json!({
        "what": "pipeline",
        "codec": codec.name(),
        "mode": mode.name(),
        "gbps": gbps,
        "kv_bytes": bytes,
        "cpu_s": cpu,
        "wall_s": wall.as_secs_f64(),
    }))
}

/// Loads the chunks of the prompt over and over: the next use of a frame begins with the end of the
/// one before it.
fn stream(device: &mut Device, n: u32, time: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    let mut places: HashMap<u64, u32> =
        (0..n).map(|i| (device.send(load(0, 0, i, i)), i)).collect();
    while !places.is_empty() {
        for completion in device.poll() {
            if completion.result != SAC_FETCH_DONE {
                return Err(format!("a chunk did not come: {completion:?}").into());
            }
            let place = places.remove(&completion.id).ok_or("an answer that was not asked for")?;
            if began.elapsed() < time {
                places.insert(device.send(load(0, 0, place, place)), place);
            }
        }
        std::thread::sleep(POLL_EVERY);
    }
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
        std::thread::sleep(POLL_EVERY);
    }
    Ok((first.unwrap_or_default(), began.elapsed()))
}
