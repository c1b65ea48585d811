//! The pairs: victims alone, then the same victims beside attackers, on servers one by one.

use std::time::Duration;

use anyhow::{Context, bail};
use saccade_load::{Arrival, LoadSpec, Slo, Summary, Workload};

use super::super::quiet;
use super::record::{Pair, Setup, Window};
use crate::attackers::{Attackers, Chosen};
use crate::footprints::Watch;
use crate::interference::{Client, Server, ServerSpec, unix_s};

/// Warm-up victims of a server, so that no measured victim is its first.
const PRIMING: u64 = 4;
/// Most victims of a window: failures that come at once must not fill the memory.
const MAX_VICTIMS: u64 = 200_000;

/// A server that is up.
#[derive(Debug)]
struct Up {
    index: usize,
    server: Server,
    /// Seconds that a probe takes while the server is otherwise idle.
    quiet_s: f64,
}

/// Keys of the two sides, where they are not the servers' own.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    pub victims: Option<String>,
    pub attackers: Option<String>,
}

/// What stays the same over all pairs.
#[derive(Debug)]
pub(super) struct Session {
    pub specs: Vec<ServerSpec>,
    pub setup: Setup,
    pub client: Client,
    pub keys: Keys,
    pub startups_s: Vec<Vec<f64>>,
    pub models: Vec<Option<String>>,
    up: Option<Up>,
}

impl Session {
    pub fn new(specs: Vec<ServerSpec>, setup: Setup, client: Client, keys: Keys) -> Session {
        Session {
            startups_s: vec![Vec::new(); specs.len()],
            models: vec![None; specs.len()],
            specs: specs.into_iter().map(|spec| with_key(spec, keys.victims.as_ref())).collect(),
            setup,
            client,
            keys,
            up: None,
        }
    }

    /// Measures one pair. What goes wrong is in its record.
    pub fn measure(&mut self, index: usize, repeat: usize, server: usize, attack: &Chosen) -> Pair {
        // Four seeds: victims and attackers of two windows.
        let seed = self.setup.seed.wrapping_add(4 * index as u64);
        let quiet = self.window(server, None, seed);
        let attacked = self.window(server, Some(attack), seed.wrapping_add(2));
        let server = self.specs[server].target.name.clone();
        Pair { index, repeat, server, attack: attack.clone(), quiet, attacked }
    }

    fn window(&mut self, server: usize, attack: Option<&Chosen>, seed: u64) -> Window {
        let mut window = Window::at(unix_s());
        if let Err(error) = self.fill(server, attack, seed, &mut window) {
            window.error = Some(format!("{error:#}"));
        }
        window
    }

    fn fill(
        &mut self,
        server: usize,
        attack: Option<&Chosen>,
        seed: u64,
        window: &mut Window,
    ) -> anyhow::Result<()> {
        self.bring_up(server)?;
        let up = self.up.as_mut().context("the server is down")?;
        window.started_unix_s = unix_s();
        let watch = up.server.root_pid().map(Watch::start).transpose()?;
        let attackers = attack.map(|chosen| {
            let mut target = up.server.target.clone();
            if self.keys.attackers.is_some() {
                target.api_key.clone_from(&self.keys.attackers);
            }
            Attackers::start(chosen, &target, self.client.cores.clone(), seed.wrapping_add(1))
        });
        let attackers = attackers.transpose()?;
        if attackers.is_some() {
            std::thread::sleep(Duration::from_secs_f64(self.setup.lead_s));
        }
        let spec = victims(&self.setup, seed);
        let run = self.client.run(&up.server.target, &spec, &()).context("victims")?;
        window.attackers = attackers.map(Attackers::stop).transpose().context("attackers")?;
        let summary = Summary::of(&run, &Slo::default());
        window.distrust = self.client.distrust(&run.client, &summary);
        (window.victims, window.client) = (Some(summary), Some(run.client));
        let ended = up.server.check().err();
        if ended.is_none() {
            let limit = Duration::from_secs_f64(self.setup.drain_s);
            let target = &up.server.target;
            window.drained_s = quiet::wait(&self.client, target, up.quiet_s, seed, limit)?;
        }
        window.footprint = watch.map(Watch::most);
        window.server_ended = ended.or_else(|| up.server.check().err()).map(|e| format!("{e:#}"));
        let must_restart = window.server_ended.is_some() || window.drained_s.is_none();
        if must_restart && up.server.spec.start.is_some() {
            // Leftovers of this attack must not reach the next window.
            let up = self.up.take();
            if window.server_ended.is_none() {
                up.map_or(Ok(()), |up| up.server.stop())?;
            }
        }
        Ok(())
    }

    fn bring_up(&mut self, index: usize) -> anyhow::Result<()> {
        if let Some(up) = &mut self.up
            && up.index == index
            && up.server.check().is_ok()
        {
            return Ok(());
        }
        self.end()?;
        let spec = &self.specs[index];
        let workload = victims(&self.setup, 0).workload;
        let server = Server::bring_up(spec, &workload, None)?;
        self.startups_s[index].extend(server.startup_s);
        self.models[index].clone_from(&server.target.model);
        let up = Up { index, server, quiet_s: 0.0 };
        let up = self.up.insert(up);
        // Prompts that no window uses.
        let seed = !self.setup.seed;
        let mut priming = victims(&self.setup, seed);
        (priming.requests, priming.duration_s) = (Some(PRIMING), None);
        self.client.run(&up.server.target, &priming, &())?;
        let timeout_s = self.setup.timeout_s;
        let quiet =
            quiet::measure(&self.client, &up.server.target, seed.wrapping_sub(1), timeout_s)?;
        let Some(quiet_s) = quiet else { bail!("a quiet server does not answer in time") };
        up.quiet_s = quiet_s;
        Ok(())
    }

    /// Stops the server that is up, if it was started here.
    pub fn end(&mut self) -> anyhow::Result<()> {
        self.up.take().map_or(Ok(()), |up| up.server.stop())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("saccade: {error:#}");
        }
    }
}

fn with_key(mut spec: ServerSpec, key: Option<&String>) -> ServerSpec {
    if key.is_some() {
        spec.target.api_key = key.cloned();
    }
    spec
}

/// The victims of a window.
fn victims(setup: &Setup, seed: u64) -> LoadSpec {
    let workload = Workload::fixed(setup.victim_prompt_tokens, setup.victim_output_tokens);
    let arrival = Arrival::Closed { concurrency: setup.victim_streams };
    let mut spec = LoadSpec::new(arrival, workload, MAX_VICTIMS);
    spec.duration_s = Some(setup.window_s);
    (spec.request_timeout_s, spec.drain_timeout_s) = (setup.timeout_s, setup.timeout_s);
    spec.seed = seed;
    spec
}
