//! The threads and buffers that move chunks: made for one shape of chunk, and kept for as long as
//! devices have that shape.

mod balance;
mod encoder;
mod job;
mod stages;

use std::sync::Arc;
use std::thread::JoinHandle;

use saccade_chunk::codec::Scratch;
use saccade_chunk::{Geometry, ModelId, Name, Value, raw_value_bytes};
use saccade_host::CpuSet;
use tokio::sync::Semaphore;

pub(crate) use balance::network_cores;
pub(crate) use encoder::{EncodeJob, Encoders};
pub(crate) use job::ChunkJob;

use crate::config::{FetchConfig, FetchError, FetchMode, Threads};
use crate::counters::Counters;
use balance::Rates;
use encoder::Buffers;
use stages::{Role, Stages};

/// How often a worker looks for work before it sleeps: some 20 us.
const SPINS: u32 = 2000;
/// Values on their way at once, whatever the buffers hold.
const MAX_VALUES: u64 = 256;
/// The pipeline needs one value on its way while another is decoded.
const MIN_VALUES: u64 = 2;
/// Scratches of a worker: one that it fills or empties, and one that waits.
const SCRATCHES_PER_WORKER: usize = 2;
/// Chunks of an encoder that are encoded, or on their way to the store.
const PUTS_PER_ENCODER: usize = 2;
/// Priority of encoders below the others.
const ENCODER_NICE: i32 = 15;

pub(crate) struct Engine {
    geometry: Geometry,
    stages: Arc<Stages>,
    encoders: Arc<Encoders>,
    threads: Vec<JoinHandle<()>>,
    /// Room for values that come in.
    pub values: Arc<Semaphore>,
    /// With `NoPipeline`: the right to be the one chunk on its way.
    pub alone: Option<Arc<Semaphore>>,
    /// Room for values that go out.
    pub puts: Arc<Semaphore>,
}

/// How the buffers are partitioned.
struct Partition {
    scratches: usize,
    values: usize,
}

impl Engine {
    /// Allocates and touches all buffers, measures, and starts the threads.
    ///
    /// # Errors
    /// The buffers are too small for this shape, or a thread cannot be started.
    pub fn start(
        config: &FetchConfig,
        geometry: Geometry,
        counters: &Arc<Counters>,
    ) -> Result<Engine, FetchError> {
        let rates = Rates::measure(config.codec, &geometry, &mut []);
        let threads = config.threads.unwrap_or_else(|| balance::divide(config.num_cores(), &rates));
        let partition = partition(config, &geometry, &threads)?;
        let mut scratches: Vec<_> =
            std::iter::repeat_with(Scratch::default).take(partition.scratches).collect();
        Rates::measure(config.codec, &geometry, &mut scratches);
        log(config, &threads, &rates, &partition);
        let puts = threads.encoders * PUTS_PER_ENCODER;
        let (mode, counters) = (config.mode, counters.clone());
        let mut engine = Engine {
            geometry,
            stages: Arc::new(Stages::new(
                geometry,
                mode,
                partition.values,
                scratches,
                counters.clone(),
            )),
            encoders: Arc::new(Encoders::new(config.codec, puts.max(1), counters)),
            threads: Vec::new(),
            values: Arc::new(Semaphore::new(partition.values)),
            alone: (mode == FetchMode::NoPipeline).then(|| Arc::new(Semaphore::new(1))),
            puts: Arc::new(Semaphore::new(puts)),
        };
        engine.start_workers(config, &threads)?;
        if config.stores {
            engine.start_encoders(config, &threads)?;
        }
        Ok(engine)
    }

    /// Of the chunks that it moves.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Longest value that is taken.
    pub fn max_value_bytes(&self) -> usize {
        raw_value_bytes(&self.geometry)
    }

    /// Takes a value that has come.
    pub fn submit(&self, job: ChunkJob) {
        self.stages.submit(job);
    }

    /// Takes a frame to encode. False: there is no room.
    pub fn encode(&self, job: EncodeJob) -> bool {
        self.encoders.submit(job)
    }

    /// Whether all threads are there.
    pub fn is_whole(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    fn start_workers(&mut self, config: &FetchConfig, threads: &Threads) -> Result<(), FetchError> {
        let workers = (threads.coders + threads.placers).max(1);
        let cores = worker_cores(config);
        let spins = if config.num_cores() > 1 { SPINS } else { 0 };
        for i in 0..workers {
            let role = match i {
                _ if workers == 1 => Role::Both,
                i if i < threads.coders => Role::Coder,
                _ => Role::Placer,
            };
            let core = cores.as_ref().map(|cores| CpuSet::new([cores[i % cores.len()]]));
            let (stages, kv) = (self.stages.clone(), vec![1; self.geometry.plane_bytes()]);
            let work = move || {
                pin(core.as_ref());
                stages.work(role, spins, kv);
            };
            self.threads.push(spawn(format!("fetch {role:?} {i}"), work)?);
        }
        Ok(())
    }

    fn start_encoders(
        &mut self,
        config: &FetchConfig,
        threads: &Threads,
    ) -> Result<(), FetchError> {
        for i in 0..threads.encoders {
            let cores = worker_cores(config).map(CpuSet::new);
            let encoders = self.encoders.clone();
            let (model, codec) = (ModelId::from_bytes([0; 32]), config.codec);
            let value = Value {
                model,
                name: Name::root(&model, &[]),
                first_token: 0,
                geometry: self.geometry,
            };
            let work = move || {
                pin(cores.as_ref());
                lower_priority();
                encoders.work(Buffers::new(&value, codec));
            };
            self.threads.push(spawn(format!("fetch encoder {i}"), work)?);
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stages.stop();
        self.encoders.stop();
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so.
            thread.join().ok();
        }
    }
}

fn spawn(
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, std::io::Error> {
    std::thread::Builder::new().name(name.to_lowercase()).spawn(work)
}

/// Cores of workers: all but those that only the network has.
fn worker_cores(config: &FetchConfig) -> Option<Vec<u32>> {
    let cores: Vec<u32> = config.cores.as_ref()?.iter().collect();
    let own = network_cores(cores.len());
    (!cores.is_empty()).then(|| cores[own..].to_vec())
}

/// Binds this thread. A core that is not there any more costs speed only.
pub(crate) fn pin(cores: Option<&CpuSet>) {
    if let Some(Err(error)) = cores.map(|cores| cores.bind(0)) {
        tracing::warn!(%error, "a thread of the fetch plane runs on any core");
    }
}

fn lower_priority() {
    // SAFETY: a plain system call on the calling thread. It costs speed only if it fails.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, ENCODER_NICE) };
}

/// Buffers of fixed number first; values get the rest.
fn partition(
    config: &FetchConfig,
    geometry: &Geometry,
    threads: &Threads,
) -> Result<Partition, FetchError> {
    let workers = (threads.coders + threads.placers).max(1);
    let scratches = match config.mode {
        // All planes of a chunk are decoded before one is placed.
        FetchMode::NoPipeline => geometry.num_planes() + workers,
        FetchMode::Pipelined | FetchMode::NoMemoryManagement => SCRATCHES_PER_WORKER * workers,
    };
    let value = raw_value_bytes(geometry) as u64;
    let encoders = if config.stores { threads.encoders as u64 } else { 0 };
    let of_encoder = geometry.bytes() as u64 + (1 + PUTS_PER_ENCODER as u64) * value;
    let fixed = (workers * geometry.plane_bytes() + scratches * geometry.plane_elements()) as u64
        + encoders * of_encoder;
    let least = fixed + MIN_VALUES * value;
    if config.buffer_bytes < least {
        return Err(FetchError::Buffers { given: config.buffer_bytes, least });
    }
    let values = ((config.buffer_bytes - fixed) / value).min(MAX_VALUES);
    Ok(Partition { scratches, values: values as usize })
}

fn log(config: &FetchConfig, threads: &Threads, rates: &Rates, partition: &Partition) {
    let (coder, place) = rates.gbps();
    tracing::info!(
        codec = config.codec.name(),
        mode = config.mode.name(),
        coder_gbps = format_args!("{coder:.1}"),
        place_gbps = format_args!("{place:.1}"),
        coders = threads.coders,
        placers = threads.placers,
        encoders = threads.encoders,
        values = partition.values,
        "fetch plane: rates of one core, and how cores and buffers are divided"
    );
}
