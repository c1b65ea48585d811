//! A frontend plane process: flags become its configuration.

use std::net::ToSocketAddrs;
use std::time::Duration;

use anyhow::Context;
use saccade_frontend::{Cors, FrontendConfig, HttpLimits, Listen, ShutdownHandle, SloDefaults};
use saccade_ring::ShmTransport;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{DeviceName, HttpArgs, RingPlace, SchedulerPlace, ServeArgs};
use crate::{model_source, remote};

/// Runs the plane until it has drained after SIGTERM or SIGINT; a second signal ends it at once.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let scratch = model_source::scratch()?;
    let (config, ring) = (config(args, scratch.path())?, ring(args)?);
    // Connections have threads of their own; this one waits for signals and the end.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let started = |address: &str, handle: ShutdownHandle| {
            eprintln!("  listening on     {address}");
            tokio::spawn(end_on_signals(signals, handle));
        };
        match ring {
            RingPlace::File(path) => {
                let transport = ShmTransport::open(path)
                    .with_context(|| format!("--ring {}", path.display()))?;
                Ok(saccade_frontend::serve(config, transport, started).await?)
            }
            RingPlace::Ucx(address) => {
                let (transport, replaced) = remote::join(address)?;
                tokio::select! {
                    served = saccade_frontend::serve(config, transport, started) => Ok(served?),
                    why = replaced => Err(why),
                }
            }
        }
    })
}

async fn end_on_signals((mut terminate, mut interrupt): (Signal, Signal), handle: ShutdownHandle) {
    for end in [ShutdownHandle::drain, ShutdownHandle::stop] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        end(&handle);
    }
}

fn ring(args: &ServeArgs) -> anyhow::Result<&RingPlace> {
    args.ring.ring.as_ref().context("--ring names the region to join")
}

fn config(args: &ServeArgs, scratch: &std::path::Path) -> anyhow::Result<FrontendConfig> {
    let (model, http) = (&args.model, &args.http);
    http.check()?;
    let folder = model_source::open(&without_weights(args), scratch)?;
    Ok(FrontendConfig {
        listen: listen(http)?,
        frontend_index: args.ring.frontend_index,
        model: folder.root().display().to_string(),
        tokenizer: model.tokenizer.clone(),
        revision: None, // the folder is local by now
        served_model_names: model_source::served_names(model),
        api_keys: http.api_key.clone(),
        cache_salt_by_key: http.cache_salt_by_key,
        chat_template: model.chat_template.clone(),
        generation_config: model.generation_config == "auto",
        priority_scheduling: args.device.policy.has_classes(),
        max_num_queued_reqs: http.max_num_queued_reqs,
        slo: SloDefaults {
            ttft_s: http.slo_ttft_ms as f32 / 1e3,
            tpot_s: http.slo_tpot_ms as f32 / 1e3,
        },
        cors: Cors { allowed_origins: http.allowed_origins.clone(), ..Cors::default() },
        http_threads: http.http_threads,
        tokenizer_threads: http.tokenizer_threads,
        tokenizer_cache_bytes: http.tokenizer_cache_bytes,
        reader_spin: Duration::from_micros(http.reader_spin_us),
        reader_poll: reader_poll(args),
        http: HttpLimits {
            max_connections: http.max_connections,
            max_body_bytes: http.max_body_bytes,
            stall_timeout: Duration::from_secs(http.stall_timeout_s),
            ..HttpLimits::default()
        },
        drain_timeout: Duration::from_secs(http.drain_timeout_s),
        device_lost_after: Duration::from_secs(http.device_lost_after_s),
        ui: !http.disable_ui,
        ..FrontendConfig::default()
    })
}

/// A scheduler on a GPU makes no system call, so it wakes no reader. Nor can a remote device.
fn reader_poll(args: &ServeArgs) -> Option<Duration> {
    const WAKELESS_POLL: Duration = Duration::from_micros(200);
    let asked = args.http.reader_poll_us.map(Duration::from_micros);
    let on_gpu = matches!(args.device.device, DeviceName::Cuda | DeviceName::CudaNull)
        && args.sim.scheduler == SchedulerPlace::Device;
    let remote = matches!(args.ring.ring, Some(RingPlace::Ucx(_)));
    asked.or((on_gpu || remote).then_some(WAKELESS_POLL))
}

/// The frontend needs no weights.
fn without_weights(args: &ServeArgs) -> crate::cli::ModelArgs {
    crate::cli::ModelArgs { load_format: crate::cli::LoadFormat::Dummy, ..args.model.clone() }
}

fn listen(http: &HttpArgs) -> anyhow::Result<Listen> {
    if let Some(path) = &http.uds {
        return Ok(Listen::Unix(path.clone()));
    }
    let address = (http.host.as_str(), http.port)
        .to_socket_addrs()
        .with_context(|| format!("--host {}", http.host))?
        .next()
        .with_context(|| format!("--host {} has no address", http.host))?;
    Ok(Listen::Tcp(address))
}
