//! Clients that do a server harm, as any client could: attacks by name, on a thread of their own,
//! with bounded connections, memory and rates. What they saw is counted.

mod bodies;
mod bombs;
mod catalogue;
mod malformed;
mod tally;
mod wire;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use saccade_host::CpuSet;
use saccade_load::{Session, Target};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub(crate) use bodies::Draw;
use bodies::{Bodies, Form};
pub(crate) use catalogue::choose;
pub use catalogue::{Chosen, Kind};
pub use tally::Tally;
use wire::Way;
use work::Attack;

/// Longest wait for each of the two questions before an attack.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);

/// What an attack came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seen {
    /// Its counts.
    pub tally: Tally,
    /// What its prompts were made of.
    pub prompts: String,
    /// Most tokens of a request, where the server lists it.
    pub limit: Option<usize>,
    /// Share of one core that the attackers themselves used.
    pub cpu_share: f64,
    /// How long they attacked, seconds.
    pub seconds: f64,
}

/// Attackers at work, until they are stopped or this is dropped.
#[derive(Debug)]
pub struct Attackers {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<Seen>>>,
}

impl Attackers {
    /// Starts them on these cores. The target has its model; its key is the attackers'.
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        chosen: &Chosen,
        target: &Target,
        cores: CpuSet,
        seed: u64,
    ) -> anyhow::Result<Attackers> {
        saccade_load::raise_open_files();
        let (stop, stopped) = oneshot::channel();
        let (chosen, target) = (chosen.clone(), target.clone());
        let work = move || {
            cores.bind(0).context("the attackers' cores")?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(attack(chosen, &target, seed, stopped))
        };
        let thread = std::thread::Builder::new().name("attackers".into()).spawn(work)?;
        Ok(Attackers { stop: Some(stop), thread: Some(thread) })
    }

    /// Stops them: all their connections are closed at once.
    ///
    /// # Errors
    /// They could not begin: the server's name is unknown, or it does not speak plain HTTP.
    pub fn stop(mut self) -> anyhow::Result<Seen> {
        self.stop.take();
        let thread = self.thread.take().context("attackers are stopped once")?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // What it says is of no use to the one who gives it up.
            let _ = thread.join();
        }
    }
}

/// Attacks until `stopped` ends.
async fn attack(
    chosen: Chosen,
    target: &Target,
    seed: u64,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<Seen> {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let way = Way::to(&target.base_url, target.api_key.clone(), Arc::clone(&tally)).await?;
    let (limit, form) = tokio::select! {
        asked = ask(target) => asked,
        _ = &mut stopped => (None, Form::Words),
    };
    let bodies = Bodies {
        api: target.api,
        path: target.endpoint.clone().unwrap_or_else(|| target.api.path().to_owned()),
        model: target.model.clone().unwrap_or_default(),
        form,
    };
    let clients = chosen.count("clients") as u64;
    let attack = Arc::new(Attack::new(chosen, way, bodies, limit));
    let from = std::time::Instant::now();
    let cpu_from = thread_cpu_s();
    let mut all = JoinSet::new();
    for number in 0..clients {
        all.spawn(work::client(Arc::clone(&attack), number, seed));
    }
    // No client ends by itself; dropping them closes their connections.
    let _ = stopped.await;
    let seconds = from.elapsed().as_secs_f64();
    let cpu_share = (thread_cpu_s() - cpu_from) / seconds.max(1e-9);
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
    all.shutdown().await;
    Ok(Seen { tally, prompts: form.name().to_owned(), limit, cpu_share, seconds })
}

/// The model's limit, where the server lists it; and whether it takes token ids as prompts. A
/// server that answers neither is attacked with words.
async fn ask(target: &Target) -> (Option<usize>, Form) {
    let Ok(session) = Session::new(target, 1, ASK_TIMEOUT).await else {
        return (None, Form::Words);
    };
    let listed = session.get("/v1/models").await.ok();
    let listed = listed.and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
    let limit = listed.as_ref().and_then(|list| limit_in(list, target.model.as_deref()));
    if target.api == saccade_load::Api::Chat {
        return (limit, Form::Words);
    }
    let body = json!({
        "model": target.model, "prompt": [300, 301], "max_tokens": 1, "temperature": 0,
    });
    let path = target.endpoint.as_deref().unwrap_or(target.api.path());
    let taken = session.post(path, body.to_string().into()).await;
    let takes_ids = taken.is_ok_and(|answer| answer.status / 100 == 2);
    (limit, if takes_ids { Form::Ids } else { Form::Words })
}

/// The most tokens of a request in a list of models: of this model, or of the first.
fn limit_in(list: &Value, model: Option<&str>) -> Option<usize> {
    let models = list["data"].as_array()?;
    let named = models.iter().find(|one| one["id"].as_str() == model);
    let one = named.or(models.first())?;
    // vLLM and Saccade, llama.cpp, others.
    let places = ["/max_model_len", "/meta/n_ctx", "/meta/n_ctx_train", "/context_length"];
    let found = places.iter().find_map(|place| one.pointer(place)?.as_u64())?;
    usize::try_from(found).ok()
}

/// Seconds of processor time of the calling thread.
fn thread_cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec. It cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_several_servers() {
        for (one, limit) in [
            (json!({"id": "m", "max_model_len": 2048}), Some(2048)),
            (json!({"id": "m", "meta": {"n_ctx_train": 4096}}), Some(4096)),
            (json!({"id": "m"}), None),
        ] {
            assert_eq!(limit_in(&json!({"data": [{"id": "x"}, one]}), Some("m")), limit);
        }
        assert_eq!(limit_in(&json!({"data": [{"max_model_len": 7}]}), Some("m")), Some(7));
        assert_eq!(limit_in(&json!({}), None), None);
    }
}
