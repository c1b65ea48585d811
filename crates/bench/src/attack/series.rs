//! One series of victims alongside attackers, and the server they share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use saccade_host::{CpuSet, Root};
use saccade_load::{
    Arrival, LoadSpec, Observer, Outcome, RequestRecord, Run, Slo, Summary, Target, Workload,
};

use super::budgets::Budget;
use super::quiet;
use super::record::{Attack, AttackSeen, Series, Setup, Victim};
use crate::interference::{Client, HostWatch, Server, ServerSpec, unix_s};

/// Attackers in flight when the victims are through are cut after this.
const ATTACK_DRAIN_S: f64 = 0.2;
/// Warm-up victims of a server, so that no measured victim is its first.
const PRIMING: u64 = 2;

/// Which server on which budget: the unit that is restarted, or bound again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub server: usize,
    pub budget: usize,
}

/// A server that is up, on its budget.
#[derive(Debug)]
struct Up {
    unit: Unit,
    server: Server,
    /// Seconds that a probe takes while the server is otherwise idle.
    quiet_s: f64,
    /// Cores to give back to a server that was not started here.
    own_cores: Option<CpuSet>,
}

/// What stays the same over all series.
#[derive(Debug)]
pub(super) struct Experiment {
    pub root: Root,
    pub specs: Vec<ServerSpec>,
    pub budgets: Vec<Budget>,
    /// The first is the baseline.
    pub attacks: Vec<Option<Attack>>,
    pub setup: Setup,
    pub client: Client,
    /// Cores of the client: given, or what a budget leaves of the usable ones.
    pub client_cores: Option<CpuSet>,
    pub usable: CpuSet,
    pub drain_limit: Duration,
    pub startups_s: Vec<Vec<f64>>,
    pub models: Vec<Option<String>>,
    up: Option<Up>,
    /// Units that could not be brought up, and why: they are not tried again.
    failed: Vec<(Unit, String)>,
}

impl Experiment {
    pub fn new(
        specs: Vec<ServerSpec>,
        budgets: Vec<Budget>,
        attacks: Vec<Option<Attack>>,
        setup: Setup,
        client: (Client, Option<CpuSet>),
        drain_limit: Duration,
    ) -> anyhow::Result<Experiment> {
        Ok(Experiment {
            root: Root::default(),
            startups_s: vec![Vec::new(); specs.len()],
            models: vec![None; specs.len()],
            specs,
            budgets,
            attacks,
            setup,
            client: client.0,
            client_cores: client.1,
            usable: CpuSet::of_task(0)?,
            drain_limit,
            up: None,
            failed: Vec::new(),
        })
    }

    /// Measures one series. What goes wrong is in its record.
    pub fn measure(&mut self, index: usize, repeat: usize, unit: Unit, attack: usize) -> Series {
        let budget = &self.budgets[unit.budget];
        let mut series = Series {
            index,
            repeat,
            server: self.specs[unit.server].target.name.clone(),
            cores: budget.count,
            client_cores: self.cores_of_client(budget),
            attack: self.attacks[attack],
            started_unix_s: unix_s(),
            victims: Vec::new(),
            attackers: None,
            client: None,
            distrust: Vec::new(),
            host: None,
            drained_s: None,
            error: None,
        };
        let seed = self.seed(repeat, unit, attack);
        if let Err(error) = self.fill(unit, seed, &mut series) {
            series.error = Some(format!("{error:#}"));
        }
        series
    }

    fn cores_of_client(&self, budget: &Budget) -> CpuSet {
        let rest = self.usable.without(&budget.cores);
        let rest = if rest.is_empty() { self.usable.clone() } else { rest };
        self.client_cores.clone().unwrap_or(rest)
    }

    /// Equal for all servers, and never the same twice for one of them: a prompt that it has seen
    /// would be served from its prefix cache.
    fn seed(&self, repeat: usize, unit: Unit, attack: usize) -> u64 {
        let place = (repeat * self.budgets.len() + unit.budget) * self.attacks.len() + attack;
        // Victims and attackers of a series draw from two seeds.
        self.setup.seed.wrapping_add(2 * place as u64)
    }

    fn fill(&mut self, unit: Unit, seed: u64, series: &mut Series) -> anyhow::Result<()> {
        let client = self.client.on(series.client_cores.clone());
        self.bring_up(unit, &client)?;
        let up = self.up.as_ref().context("the server is down")?;
        let watch = match up.server.tree() {
            pids if pids.is_empty() => None,
            pids => Some(HostWatch::start(&self.root, &pids)?),
        };
        series.started_unix_s = unix_s();
        let attack = series.attack.map(|attack| self.attack_spec(attack, seed + 1));
        let (victims, attackers) = beside(
            &client,
            &up.server.target,
            &self.victim_spec(seed),
            attack.as_ref(),
            Duration::from_secs_f64(self.setup.lead_s),
        )?;
        let tree = up.server.tree();
        if let Some(up) = &mut self.up {
            up.server.check()?;
        }
        series.host = watch.map(|watch| watch.finish(&self.root, &tree)).transpose()?;
        series.distrust = client.distrust(&victims.client, &Summary::of(&victims, &Slo::default()));
        series.victims =
            victims.requests.iter().enumerate().map(|(i, r)| Victim::of(i + 1, r)).collect();
        series.client = Some(victims.client);
        series.attackers = attackers.map(AttackSeen::of);
        let up = self.up.as_ref().context("the server is down")?;
        series.drained_s =
            quiet::wait(&client, &up.server.target, up.quiet_s, seed, self.drain_limit)?;
        if series.drained_s.is_none() && up.server.spec.start.is_some() {
            // Leftovers of this attack must not reach the next series.
            self.up.take().map_or(Ok(()), |up| up.server.stop())?;
        }
        Ok(())
    }

    fn victim_spec(&self, seed: u64) -> LoadSpec {
        let setup = &self.setup;
        let workload = Workload::fixed(setup.victim_prompt_tokens, setup.victim_output_tokens);
        let one_by_one = Arrival::Closed { concurrency: 1 };
        let mut spec = LoadSpec::new(one_by_one, workload, setup.victims as u64);
        (spec.request_timeout_s, spec.drain_timeout_s) = (setup.timeout_s, setup.timeout_s);
        spec.seed = seed;
        spec
    }

    fn attack_spec(&self, attack: Attack, seed: u64) -> LoadSpec {
        let setup = &self.setup;
        let workload = Workload::fixed(attack.prompt_tokens, setup.attack_output_tokens);
        let arrival = Arrival::Constant { rate_rps: attack.rate_rps };
        let mut spec = LoadSpec::new(arrival, workload, 1);
        // Until it is stopped; this bound is never reached before the victims' own.
        let longest_s = setup.lead_s + (setup.victims as f64 + 1.0) * setup.timeout_s;
        (spec.requests, spec.duration_s) = (None, Some(longest_s));
        (spec.request_timeout_s, spec.drain_timeout_s) = (longest_s, ATTACK_DRAIN_S);
        spec.seed = seed;
        spec
    }

    fn bring_up(&mut self, unit: Unit, client: &Client) -> anyhow::Result<()> {
        if let Some(up) = &mut self.up
            && up.unit == unit
            && up.server.check().is_ok()
        {
            return Ok(());
        }
        self.end()?;
        if let Some((_, why)) = self.failed.iter().find(|(failed, _)| *failed == unit) {
            bail!("{why}");
        }
        self.start(unit, client).inspect_err(|error| self.failed.push((unit, format!("{error:#}"))))
    }

    fn start(&mut self, unit: Unit, client: &Client) -> anyhow::Result<()> {
        let budget = &self.budgets[unit.budget].cores;
        let spec = &self.specs[unit.server];
        let server = Server::bring_up(spec, &self.victim_spec(0).workload, Some(budget))?;
        self.startups_s[unit.server].extend(server.startup_s);
        self.models[unit.server].clone_from(&server.target.model);
        let own_cores = match spec.start {
            Some(_) => None,
            None => server.root_pid().and_then(|pid| CpuSet::of_task(pid as libc::pid_t).ok()),
        };
        let mut up = Up { unit, server, quiet_s: 0.0, own_cores };
        if up.server.spec.start.is_none() {
            up.server.bind(budget)?;
        }
        // Prompts that no series uses.
        let seed = !self.setup.seed;
        let mut priming = self.victim_spec(seed);
        priming.requests = Some(PRIMING);
        client.run(&up.server.target, &priming, &())?;
        let timeout_s = self.setup.timeout_s;
        let quiet = quiet::measure(client, &up.server.target, seed.wrapping_sub(1), timeout_s)?;
        up.quiet_s = quiet.context("a quiet server does not answer in time")?;
        self.up = Some(up);
        Ok(())
    }

    /// Stops the server that is up, or gives it back the cores that it had.
    pub fn end(&mut self) -> anyhow::Result<()> {
        let Some(up) = self.up.take() else { return Ok(()) };
        if let Some(cores) = &up.own_cores {
            up.server.bind(cores)?;
        }
        up.server.stop()
    }
}

impl Drop for Experiment {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("saccade: {error:#}");
        }
    }
}

/// Victims one by one; attackers, if any, from some time before the first until after the last.
fn beside(
    client: &Client,
    target: &Target,
    victims: &LoadSpec,
    attack: Option<&LoadSpec>,
    lead: Duration,
) -> anyhow::Result<(Run, Option<Run>)> {
    let through = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attackers = attack.map(|spec| {
            let observer = Until(&through);
            scope.spawn(move || client.run(target, spec, &observer))
        });
        if attackers.is_some() {
            std::thread::sleep(lead);
        }
        let victims = client.run(target, victims, &UntilTimeout::default());
        // SYNC: relaxed, partner `Until::should_stop`: a flag and nothing behind it.
        through.store(true, Ordering::Relaxed);
        let attackers = attackers.map(|thread| match thread.join() {
            Ok(run) => run,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        Ok((victims.context("victims")?, attackers.transpose().context("attackers")?))
    })
}

/// Attackers until the victims are through.
struct Until<'a>(&'a AtomicBool);

impl Observer for Until<'_> {
    fn should_stop(&self) -> bool {
        // SYNC: relaxed, partner `beside`: seen within the client's next look.
        self.0.load(Ordering::Relaxed)
    }
}

/// Victims until one times out: those after it would wait as long and say nothing more.
#[derive(Debug, Default)]
struct UntilTimeout(AtomicBool);

impl Observer for UntilTimeout {
    fn finished(&self, record: &RequestRecord) {
        if record.first_token_s.is_none() && record.outcome == Outcome::Timeout {
            // SYNC: relaxed, partner `should_stop` on the same thread.
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn should_stop(&self) -> bool {
        // SYNC: relaxed, partner `finished` on the same thread.
        self.0.load(Ordering::Relaxed)
    }
}
