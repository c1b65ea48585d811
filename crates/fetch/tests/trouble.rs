//! Real stores behind a proxy that misbehaves, and values that are damaged where they are kept: no
//! wrong byte is ever reported DONE, and every command is answered once and in time.
//!
//! `SACCADE_FETCH_FAULTS` says how many faults are injected, `SACCADE_SEED` which.

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use saccade_chunk::{Codec, Dtype};
use saccade_fetch::Plane;
use saccade_fetch::layout::*;
use saccade_store::testing::{Dice, Fault, Injected, Proxy, RedisServer, S3Server};
use saccade_store::{Guarded, Key, Limits, Store};

const ROWS: u32 = 24;
const CHUNKS: u32 = 4;
const FRAMES: u32 = 40;
/// Ways in which the proxy misbehaves, in turn.
const WAYS: u32 = 9;
/// Longer than a command's budget: what two busy cores may cost.
const SLACK: Duration = Duration::from_secs(3);

/// A store twice: as the plane sees it, and as it is.
struct Stage {
    /// Of one of its operations.
    deadline: Duration,
    /// Commands between two faults of the proxy.
    commands: u32,
    runtime: tokio::runtime::Runtime,
    proxy: Proxy,
    direct: Store,
    behind: Store,
}

impl Stage {
    /// `url` of an address. A store that is slow by itself gets fewer commands.
    fn new(seed: u64, server: SocketAddr, slow: bool, url: impl Fn(SocketAddr) -> String) -> Stage {
        let (deadline, commands) = if slow { (500, 60) } else { (80, 200) };
        let deadline = Duration::from_millis(deadline);
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
        let proxy = runtime.block_on(Proxy::start(server, Dice::new(seed)));
        let open = |address| {
            let url = url(address).parse().expect("a URL");
            Store::open_with(&url, S3Server::variables()).expect("a store")
        };
        let (direct, behind) = (open(server), open(proxy.address()));
        Stage { deadline, commands, runtime, proxy, direct, behind }
    }
}

/// A command that is not answered yet.
struct Pending {
    command: Command,
    sent: Instant,
}

/// A device that knows what every chunk must be.
struct Driver {
    device: Device,
    plane: Plane,
    dice: Dice,
    kv: HashMap<(u32, u32), Vec<u8>>,
    pending: HashMap<u64, Pending>,
    frames: Vec<u32>,
    /// Over their budgets.
    overruns: Vec<Duration>,
    tally: Tally,
}

/// Faults that the proxy does not count, and answers.
#[derive(Debug, Default)]
struct Tally {
    damaged: u64,
    refused: u64,
    commands: u64,
    results: [[u64; 9]; 3],
    rejections: [u64; 10],
    troubles: [u64; 9],
}

impl Driver {
    fn new(place: &Place, stage: &Stage, seed: u64) -> Driver {
        let g = geometry(1, 1, 8, Dtype::Bf16);
        let mut limits = limits(g, 64);
        (limits.num_entries, limits.num_frames) = (ROWS, FRAMES);
        let mut device = Device::new(place, &limits);
        let mut config = place.config(Codec::Lossless);
        config.buffer_bytes = 16 << 20;
        let store_limits = Limits {
            deadline: stage.deadline,
            max_in_flight: 32,
            failures: 10,
            backoff: Duration::from_millis(2),
            max_backoff: Duration::from_millis(5),
        };
        let guarded = Guarded::new(stage.behind.clone(), store_limits);
        let plane = Plane::start(config, Arc::new(guarded)).expect("a plane");
        device.wait_for_plane();
        let mut kv = HashMap::new();
        for row in 0..ROWS {
            device.set_row(row, &tokens(row + 1, CHUNKS));
            for chunk in 0..CHUNKS {
                kv.insert((row, chunk), kv_like(&g, u64::from(row * CHUNKS + chunk)));
            }
        }
        Driver {
            device,
            plane,
            dice: Dice::new(seed),
            kv,
            pending: HashMap::new(),
            frames: (0..FRAMES).collect(),
            overruns: Vec::new(),
            tally: Tally::default(),
        }
    }

    fn key(&self, row: u32, chunk: u32) -> Key {
        let model = self.device.limits.model_id;
        let name = names(&model, 0, &tokens(row + 1, CHUNKS))[chunk as usize];
        Key { model, salt: 0, name }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.dice.below(bound.into()) as u32
    }

    /// Sends a command as they come, if a frame is free.
    fn send_any(&mut self) {
        let (row, chunk) = (self.below(ROWS), self.below(CHUNKS));
        let budget_us = [3_000, 30_000, 100_000, 400_000][self.below(4) as usize];
        let kind = self.below(20);
        let command = match (kind, self.frames.last().copied()) {
            (0..4, _) | (_, None) => lookup(row, 0, chunk + 1),
            (4..12, Some(frame)) => load(row, 0, chunk, frame),
            (_, Some(frame)) => store(row, 0, chunk, frame),
        };
        let id = self.send(Command { budget_us, ..command });
        if kind == 19 {
            self.device.send(cancel(id));
        }
    }

    fn send(&mut self, command: Command) -> u64 {
        while self.pending.len() >= 60 {
            self.hear();
        }
        if command.op != SAC_FETCH_LOOKUP {
            self.frames.retain(|frame| *frame != command.frame);
            let bytes = match command.op {
                SAC_FETCH_STORE => self.device.blocks_of(&self.kv[&(command.entry, command.chunk)]),
                _ => vec![0xa5; self.device.region.layout().frame_bytes() as usize],
            };
            self.device.set_frame(command.frame, &bytes);
        }
        let sent = Instant::now();
        let id = self.device.send(command);
        self.pending.insert(id, Pending { command, sent });
        self.tally.commands += 1;
        id
    }

    /// Takes completions; the last.
    fn hear(&mut self) -> Option<Completion> {
        let mut last = None;
        for completion in self.device.poll() {
            let pending = self.pending.remove(&completion.id);
            let pending = pending.unwrap_or_else(|| panic!("answered twice: {completion:?}"));
            self.check(&pending, &completion);
            last = Some(completion);
        }
        let oldest = self.pending.values().map(|pending| pending.sent.elapsed()).max();
        assert!(oldest.unwrap_or_default() < PATIENCE, "not answered");
        std::thread::yield_now();
        last
    }

    fn check(&mut self, pending: &Pending, completion: &Completion) {
        let Pending { command, sent } = pending;
        assert_eq!(completion.op, command.op, "{completion:?}");
        let budget = Duration::from_micros(command.budget_us.into());
        let overrun = sent.elapsed().saturating_sub(budget);
        assert!(overrun < SLACK, "{overrun:?} late: {command:?} {completion:?}");
        self.overruns.push(overrun);
        let op = (completion.op - SAC_FETCH_LOOKUP) as usize;
        self.tally.results[op][completion.result as usize] += 1;
        match completion.result {
            SAC_FETCH_REJECTED => self.tally.rejections[completion.detail as usize] += 1,
            SAC_FETCH_TROUBLE => {
                self.tally.troubles[completion.detail as usize] += 1;
                if completion.detail == SAC_FETCH_TROUBLE_RESTING {
                    // Commands that do not reach the store try nothing.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }
        let internal = (SAC_FETCH_TROUBLE, SAC_FETCH_TROUBLE_INTERNAL);
        assert_ne!((completion.result, completion.detail), internal, "{command:?}");
        assert_ne!(completion.result, SAC_FETCH_INVALID, "{command:?}");
        if completion.op == SAC_FETCH_LOOKUP {
            assert!(completion.num_chunks <= command.num_tokens / 256);
            return;
        }
        self.frames.push(command.frame);
        if completion.op == SAC_FETCH_LOAD && completion.result == SAC_FETCH_DONE {
            let came = self.device.chunk_of(&self.device.frame(command.frame));
            let right = &self.kv[&(command.entry, command.chunk)];
            assert!(came == *right, "wrong bytes are DONE: {command:?}");
        }
    }

    fn drain(&mut self) {
        while !self.pending.is_empty() {
            self.hear();
        }
    }

    fn ask(&mut self, command: Command) -> Completion {
        self.drain();
        self.send(command);
        loop {
            if let Some(completion) = self.hear() {
                return completion;
            }
        }
    }

    /// Spoils a value where it is kept.
    fn damage(&mut self, stage: &Stage) {
        let (row, chunk) = (self.below(ROWS), self.below(CHUNKS));
        let (key, other) = (self.key(row, chunk), self.key(chunk, row % CHUNKS));
        let kind = self.below(6);
        let at = self.dice.next() as usize;
        stage.runtime.block_on(async {
            let Ok(Some(value)) = stage.direct.get(&key, 1 << 20).await else { return };
            let mut bytes = value.to_vec();
            match kind {
                0 => bytes.truncate(1 + at % (bytes.len() - 1)),
                1 => {
                    let at = at % bytes.len();
                    // Another version would be left where it is.
                    let at = if (4..6).contains(&at) { 0 } else { at };
                    bytes[at] ^= 1 << (row % 8);
                }
                2 => match stage.direct.get(&other, 1 << 20).await {
                    Ok(Some(value)) if other != key => bytes = value.to_vec(),
                    _ => return,
                },
                3 => bytes.fill(0x5a),
                4 => bytes = vec![7; 100_000],
                _ => bytes.clear(),
            }
            stage.direct.remove(&[key]).await.expect("a removal");
            if !bytes.is_empty() {
                stage.direct.put(&key, bytes.into()).await.expect("a value");
            }
            self.tally.damaged += 1;
        });
    }

    /// The proxy misbehaves in one way for a while.
    fn phase(&mut self, stage: &Stage, way: u32) {
        let fault = match way {
            0 => Fault::None,
            1 => Fault::Refuse,
            2 => Fault::Hang,
            3 => Fault::Stall,
            4 => Fault::Delay(Duration::from_millis(1 + u64::from(self.below(40)))),
            5 => Fault::Trickle,
            6 => Fault::Cut { within: [1, 100, 2_000, 50_000][self.below(4) as usize] },
            7 => Fault::Reset { within: [1, 100, 2_000, 50_000][self.below(4) as usize] },
            _ => Fault::Flip { every: [1_000, 10_000, 50_000][self.below(3) as usize] },
        };
        stage.runtime.block_on(async { stage.proxy.set(fault) });
        let unreachable = SAC_FETCH_TROUBLE_UNREACHABLE as usize;
        let before = self.tally.troubles[unreachable];
        let commands = stage.commands / if matches!(fault, Fault::Trickle) { 4 } else { 1 };
        for i in 0..commands {
            self.send_any();
            self.hear();
            if i % 8 == 0 {
                self.damage(stage);
            }
        }
        self.drain();
        if fault == Fault::Refuse {
            self.tally.refused += self.tally.troubles[unreachable] - before;
        }
    }

    /// Bytes of a trickle are told, and not counted: a slow answer is one fault, however long.
    fn faults(&self, injected: &Injected) -> u64 {
        let Injected { hangs, delays, cuts, resets, flips, .. } = injected;
        hangs + delays + cuts + resets + flips + self.tally.damaged + self.tally.refused
    }

    /// With a store that is well, everything can be stored and loaded.
    fn store_and_load_all(&mut self, stage: &Stage) {
        stage.runtime.block_on(async { stage.proxy.set(Fault::None) });
        let began = Instant::now();
        for row in 0..ROWS {
            for chunk in 0..CHUNKS {
                loop {
                    let loaded = self.ask(load(row, 0, chunk, 0));
                    if loaded.result == SAC_FETCH_DONE {
                        break;
                    }
                    let stored = self.ask(store(row, 0, chunk, 0));
                    let patient = began.elapsed() < 3 * PATIENCE;
                    assert!(patient, "{row} {chunk} does not come back: {loaded:?} {stored:?}");
                }
            }
        }
    }
}

fn faults(of_ci: u64) -> u64 {
    let asked = std::env::var("SACCADE_FETCH_FAULTS").ok();
    asked.and_then(|asked| asked.parse().ok()).map_or(of_ci, |asked: u64| asked * of_ci / 2000)
}

fn torment(name: &str, stage: &Stage, seed: u64, at_least: u64) {
    let place = Place::in_memory();
    let mut driver = Driver::new(&place, stage, seed);
    // So that loads find something however slow the store is: phases may store nothing in time.
    driver.store_and_load_all(stage);
    let began = Instant::now();
    let mut phases = 0;
    while phases < WAYS || driver.faults(&stage.proxy.injected()) < at_least {
        driver.phase(stage, phases % WAYS);
        phases += 1;
    }
    driver.store_and_load_all(stage);
    let injected = stage.proxy.injected();
    driver.overruns.sort();
    let at = |percent: usize| driver.overruns[(driver.overruns.len() - 1) * percent / 100];
    println!(
        "{name}: seed {seed}: {} faults in {phases} phases and {:.0?}: {injected:?}\n{:?}\n\
         over their budgets: median {:.1?}, 99 of 100 {:.1?}, longest {:.1?}",
        driver.faults(&injected),
        began.elapsed(),
        driver.tally,
        at(50),
        at(99),
        at(100),
    );
    let done = driver.tally.results[1][SAC_FETCH_DONE as usize];
    assert!(done > 2 * u64::from(ROWS * CHUNKS), "no load was done while the proxy misbehaved");
    let joins = driver.plane.stats().joins;
    assert_eq!(joins, 1, "the plane is still in its first life");
    driver.plane.stop().expect("a plane that is well");
}

fn seed() -> u64 {
    let given = std::env::var("SACCADE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(20_270_211);
    eprintln!("SACCADE_SEED={seed}");
    seed
}

#[test]
fn a_redis_behind_trouble() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let seed = seed();
    let url = |address| format!("redis://{address}/0?connections=4");
    let stage = Stage::new(seed, server.address(), false, url);
    torment("redis", &stage, seed, faults(2000));
}

#[test]
fn an_s3_behind_trouble() {
    let Some(server) = S3Server::start() else { return };
    server.make_bucket("chunks");
    let seed = seed();
    let url = |address| {
        format!("s3://chunks/e2e?endpoint=http://{address}&region=us-east-1&connections=8")
    };
    let stage = Stage::new(seed, server.address(), true, url);
    torment("s3", &stage, seed, faults(100));
}
