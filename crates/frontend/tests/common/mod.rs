//! A frontend over a fake device in this process, spoken to over real sockets.
#![allow(dead_code, clippy::unwrap_used)]

pub mod client;
pub mod tiny_tokenizer;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use saccade_frontend::{Frontend, FrontendConfig, Listen, ShutdownHandle};
use saccade_model::{ModelFolder, OpenOptions};
use saccade_ring::testing::{FakeConfig, FakeDevice, FakeRequest, Script};
use saccade_ring::{DeviceStats, InProcTransport, RegionLimits};
use serde_json::json;

/// `<|im_end|>` of the tiny tokenizer: the test model's end of sequence.
pub const EOS: u32 = 268;
pub const VOCAB_SIZE: u32 = 300;
pub const MAX_MODEL_LEN: u32 = 4096;
pub const NUM_SLOTS: u32 = 32;

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

type Device = FakeDevice<InProcTransport>;

/// A fake device on its own thread, which can be paused, killed and started again.
pub struct DeviceControl {
    transport: InProcTransport,
    device: Arc<Mutex<Device>>,
    paused: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DeviceControl {
    fn start(transport: InProcTransport, config: FakeConfig) -> Self {
        let mut device = FakeDevice::join(transport.clone(), config).unwrap();
        device.ready().unwrap();
        let device = Arc::new(Mutex::new(device));
        let (paused, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (device, paused, stop) = (device.clone(), paused.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    if !paused.load(Ordering::Relaxed) {
                        device.lock().unwrap().tick().unwrap();
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        });
        Self { transport, device, paused, stop, thread: Some(thread) }
    }

    /// No tick, and no heartbeat, until [`go_on`](Self::go_on).
    pub fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
    }

    pub fn go_on(&self) {
        self.paused.store(false, Ordering::Relaxed);
    }

    pub fn in_flight(&self) -> usize {
        self.device.lock().unwrap().in_flight()
    }

    /// Ends what the frontend has in flight, as after a heartbeat that stopped.
    pub fn give_up(&self) {
        self.device.lock().unwrap().give_up(0).unwrap();
    }

    /// How often the frontend has reset the prefixes.
    pub fn prefix_generation(&self) -> u32 {
        self.device.lock().unwrap().prefix_generation(0).unwrap()
    }

    /// Changes the counters that the device publishes; they continue from there.
    pub fn set_stats(&self, change: impl FnOnce(&mut DeviceStats)) {
        self.device.lock().unwrap().set_stats(change);
    }

    pub fn script(&self, script: Script) {
        self.device.lock().unwrap().set_script(script);
    }

    /// Every request produces the bytes of `text`, then the end of sequence for ever.
    pub fn say(&self, text: &str) {
        let bytes = text.as_bytes().to_vec();
        self.script(Box::new(move |_: &FakeRequest, i| {
            Some(bytes.get(i as usize).map_or(EOS, |b| u32::from(*b)))
        }));
    }

    /// Every request produces `a` for ever.
    pub fn babble(&self) {
        self.script(Box::new(|_: &FakeRequest, _| Some(u32::from(b'a'))));
    }

    /// Ends the device without a word and starts another one on the same region.
    pub fn restart(&mut self, config: FakeConfig) {
        self.kill();
        *self = Self::start(self.transport.clone(), config);
    }

    pub fn kill(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for DeviceControl {
    fn drop(&mut self) {
        self.kill();
    }
}

pub struct Harness {
    pub addr: SocketAddr,
    pub device: DeviceControl,
    pub shutdown: ShutdownHandle,
    server: Option<JoinHandle<()>>,
    _model: tempfile::TempDir,
}

impl Harness {
    pub fn start() -> Self {
        Self::with(|_| {}, FakeConfig::default())
    }

    pub fn with(change: impl FnOnce(&mut FrontendConfig), device: FakeConfig) -> Self {
        let harness = Self::unasked(change, device);
        harness.wait_until("ready", |h| h.get("/ready").status == 200);
        harness
    }

    /// A server that speaks HTTPS; it may not be ready yet.
    pub fn over_tls(files: saccade_frontend::TlsFiles, device: FakeConfig) -> Self {
        Self::unasked(|config| config.tls = Some(files), device)
    }

    fn unasked(change: impl FnOnce(&mut FrontendConfig), device: FakeConfig) -> Self {
        let model = tempfile::tempdir().unwrap();
        write_model(model.path());
        let limits = RegionLimits {
            num_slots: NUM_SLOTS,
            out_ring_words: 64,
            arena_bytes: 256 << 10,
            ..RegionLimits::default()
        };
        let transport = InProcTransport::create(&limits).unwrap();
        let device = FakeConfig {
            vocab_size: VOCAB_SIZE,
            max_model_len: device.max_model_len.min(MAX_MODEL_LEN),
            ..device
        };
        let device = DeviceControl::start(transport.clone(), device);
        device.say("Hello there.");
        let mut config = FrontendConfig {
            listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            model: model.path().display().to_string(),
            served_model_names: vec!["tiny".into(), "org/tiny".into()],
            device_lost_after: Duration::from_millis(800),
            drain_timeout: Duration::from_secs(5),
            tokenizer_threads: 1,
            ..FrontendConfig::default()
        };
        change(&mut config);
        let (sender, started) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(async move {
                let frontend = Frontend::start_on(config, transport).unwrap();
                let addr = frontend.tcp_addr().unwrap();
                sender.send((addr, frontend.shutdown_handle())).unwrap();
                frontend.run().await.unwrap();
            });
        });
        let (addr, shutdown) = started.recv().unwrap();
        Self { addr, device, shutdown, server: Some(server), _model: model }
    }

    pub fn wait_until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..6000 {
            if done(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{what}: not within a minute");
    }

    /// Waits for the server to end by itself.
    pub fn join(&mut self) {
        self.server.take().unwrap().join().unwrap();
    }

    /// The value of a series, by the start of its line.
    pub fn metric(&self, start: &str) -> f64 {
        self.find_metric(start).unwrap_or_else(|| panic!("no series {start}"))
    }

    /// The value of a series, by the start of its line, if there is one.
    pub fn find_metric(&self, start: &str) -> Option<f64> {
        let text = self.get("/metrics").text();
        let line = text.lines().find(|l| l.starts_with(start))?;
        Some(line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.shutdown.stop();
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }
}

/// A device that takes grammars; what it says is up to its script.
pub fn takes_grammars() -> FakeConfig {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let model =
        ModelFolder::open(folder.path().to_str().unwrap(), &OpenOptions::default()).unwrap();
    let tokens = saccade_frontend::token_bytes(&model, None, VOCAB_SIZE).unwrap();
    FakeConfig { grammars: (tokens.hash(), 1 << 15), ..FakeConfig::default() }
}

pub fn write_model(dir: &Path) {
    let write = |name: &str, json: serde_json::Value| {
        std::fs::write(dir.join(name), json.to_string()).unwrap();
    };
    write(
        "config.json",
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB_SIZE,
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": MAX_MODEL_LEN,
            "eos_token_id": EOS, "torch_dtype": "float32", "tie_word_embeddings": true
        }),
    );
    write("tokenizer.json", tiny_tokenizer::byte_level_json());
    write("tokenizer_config.json", json!({"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}));
    write("generation_config.json", json!({"temperature": 0.5, "top_k": 20}));
}
