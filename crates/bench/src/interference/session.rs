//! A measurement from the first cell to the last: servers up and down, neighbours in and out.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use saccade_host::Root;
use saccade_load::{LoadSpec, Run, Slo, Summary};

use super::client::Client;
use super::host_record::{HostRecord, HostWatch};
use super::plan::Slot;
use super::record::{Cell, Condition};
use super::servers::{Server, ServerSpec};
use crate::neighbours::{Layout, Neighbour, Pauser, Work};

/// What stays the same over all cells.
#[derive(Debug)]
pub(super) struct Session {
    pub root: Root,
    pub specs: Vec<ServerSpec>,
    pub conditions: Vec<Condition>,
    pub load: LoadSpec,
    pub client: Client,
    pub settle: Duration,
    /// Stop the servers that the tool started before another one is measured.
    pub in_turns: bool,
    /// Requests to a server that was just started, not measured.
    pub prime_requests: u64,
    pub raw_dir: Option<PathBuf>,
    pub pauser: Option<Pauser>,
    pub running: Vec<Option<Server>>,
    pub startups_s: Vec<Vec<f64>>,
    /// Why a server could not be brought up: it is not tried again.
    pub failed: Vec<Option<String>>,
}

impl Session {
    /// Measures one cell. What goes wrong is in its record.
    pub fn measure(&mut self, index: usize, slot: Slot) -> Cell {
        let mut cell = Cell {
            index,
            repeat: slot.repeat,
            server: self.specs[slot.server].target.name.clone(),
            condition: self.conditions[slot.condition].name.clone(),
            seed: self.seed(slot),
            started_unix_s: unix_s(),
            summary: None,
            client: None,
            distrust: Vec::new(),
            host: None,
            work: None,
            layout: Layout::of(&self.root, None, None),
            paused: Vec::new(),
            notes: Vec::new(),
            raw: None,
            error: None,
        };
        if let Err(error) = self.fill(slot, &mut cell) {
            cell.error = Some(format!("{error:#}"));
        }
        cell
    }

    /// Equal for all servers in one condition of one repeat, and never the same twice for one
    /// server: a prompt that it has seen would be served from its prefix cache.
    fn seed(&self, slot: Slot) -> u64 {
        let cells = (slot.repeat * self.conditions.len() + slot.condition) as u64;
        self.load.seed.wrapping_add(cells)
    }

    fn fill(&mut self, slot: Slot, cell: &mut Cell) -> anyhow::Result<()> {
        self.bring_up(slot.server)?;
        cell.paused = self.pause_others(slot.server)?;
        let neighbour = self.conditions[slot.condition].neighbour.as_ref();
        let mut neighbour = neighbour.map(Neighbour::start).transpose()?;
        let server = self.running[slot.server].as_ref().context("the server is down")?;
        let neighbour_pid = neighbour.as_ref().map(Neighbour::pid);
        cell.layout = Layout::of(&self.root, server.root_pid(), neighbour_pid);
        std::thread::sleep(self.settle);
        cell.started_unix_s = unix_s();
        // The same arrivals under every condition of a repeat: the neighbour is what is measured.
        let arrivals = self.load.seed.wrapping_add(slot.repeat as u64);
        let load = LoadSpec { seed: cell.seed, arrival_seed: Some(arrivals), ..self.load.clone() };
        let (run, host, work) = self.load_beside(server, &load, neighbour.as_ref())?;
        (cell.host, cell.work) = (host, work);
        if let Some(server) = &mut self.running[slot.server] {
            server.check()?;
        }
        cell.raw = self.keep_raw(cell, &run)?;
        let summary = Summary::of(&run, &Slo::default());
        cell.distrust = self.client.distrust(&run.client, &summary);
        cell.notes.extend(run.notes);
        cell.client = Some(run.client);
        cell.summary = Some(summary);
        if let Some(neighbour) = &mut neighbour {
            neighbour.check()?;
        }
        neighbour.map_or(Ok(()), Neighbour::stop)
    }

    fn load_beside(
        &self,
        server: &Server,
        load: &LoadSpec,
        neighbour: Option<&Neighbour>,
    ) -> anyhow::Result<(Run, Option<HostRecord>, Option<Work>)> {
        let watch = match server.tree() {
            pids if pids.is_empty() => None,
            pids => Some(HostWatch::start(&self.root, &pids)?),
        };
        let before = neighbour.map(|neighbour| (neighbour, neighbour.read()));
        let run = self.client.run(&server.target, load, &())?;
        let work = before.map(|(neighbour, reading)| neighbour.work_since(reading));
        let host = watch.map(|watch| watch.finish(&self.root, &server.tree())).transpose()?;
        Ok((run, host, work))
    }

    /// Starts every server that is resident all the time. One that cannot be brought up is
    /// reported, and each of its cells fails.
    ///
    /// # Errors
    /// No server at all can be brought up.
    pub fn bring_up_all(&mut self) -> anyhow::Result<()> {
        let resident = |spec: &ServerSpec| !self.in_turns || spec.start.is_none();
        let indices: Vec<usize> =
            (0..self.specs.len()).filter(|&i| resident(&self.specs[i])).collect();
        for index in indices {
            if let Err(error) = self.bring_up(index) {
                eprintln!("{error:#}");
            }
        }
        match self.failed.iter().flatten().next() {
            Some(first) if self.failed.iter().all(Option::is_some) => bail!("{first}"),
            _ => Ok(()),
        }
    }

    fn bring_up(&mut self, index: usize) -> anyhow::Result<()> {
        if self.in_turns {
            self.stop_started_except(index)?;
        }
        if let Some(server) = &mut self.running[index] {
            match server.check() {
                Ok(()) => return Ok(()),
                Err(error) => eprintln!("{error:#}\nserver {} is started again", server.name()),
            }
            self.running[index] = None;
        }
        if let Some(why) = &self.failed[index] {
            bail!("{why}");
        }
        self.start(index).inspect_err(|error| self.failed[index] = Some(format!("{error:#}")))
    }

    fn start(&mut self, index: usize) -> anyhow::Result<()> {
        // A server that is starting must not compete with one that is stopped half-way.
        self.pauser.as_mut().map_or(Ok(()), |pauser| pauser.pause_only(&[]))?;
        let server = Server::bring_up(&self.specs[index], &self.load.workload, None)?;
        self.startups_s[index].extend(server.startup_s);
        if server.startup_s.is_some() && self.prime_requests > 0 {
            let mut prime = LoadSpec { requests: Some(self.prime_requests), ..self.load.clone() };
            (prime.duration_s, prime.warmup) = (None, saccade_load::Warmup::default());
            // Prompts that no cell uses.
            prime.seed = !self.load.seed;
            self.client.run(&server.target, &prime, &())?;
        }
        self.running[index] = Some(server);
        Ok(())
    }

    fn stop_started_except(&mut self, index: usize) -> anyhow::Result<()> {
        for (other, running) in self.running.iter_mut().enumerate() {
            if other != index && running.as_ref().is_some_and(|s| s.spec.start.is_some()) {
                running.take().map_or(Ok(()), Server::stop)?;
            }
        }
        Ok(())
    }

    fn pause_others(&mut self, index: usize) -> anyhow::Result<Vec<String>> {
        let Some(pauser) = &mut self.pauser else { return Ok(Vec::new()) };
        let others = self.running.iter().enumerate().filter(|(other, _)| *other != index);
        let others: Vec<&Server> = others.filter_map(|(_, server)| server.as_ref()).collect();
        for other in &others {
            anyhow::ensure!(
                !other.tree().is_empty(),
                "--pause-others: the processes of {} are unknown; give --server-pid",
                other.name()
            );
        }
        let pids: Vec<u32> = others.iter().flat_map(|server| server.tree()).collect();
        pauser.pause_only(&pids)?;
        Ok(others.iter().map(|server| server.name().to_owned()).collect())
    }

    fn keep_raw(&self, cell: &Cell, run: &Run) -> anyhow::Result<Option<String>> {
        let Some(folder) = &self.raw_dir else { return Ok(None) };
        let name = format!("{:03}-{}-r{}.json", cell.index, cell.server, cell.repeat);
        crate::output::write_json(&folder.join(&name), run)?;
        Ok(Some(name))
    }

    /// Stops what it started.
    pub fn end(&mut self) -> anyhow::Result<()> {
        self.pauser = None;
        self.running.iter_mut().filter_map(Option::take).try_for_each(Server::stop)
    }
}

pub(crate) fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
