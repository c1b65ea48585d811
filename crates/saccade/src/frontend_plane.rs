//! A frontend plane process: flags become its configuration.

use std::net::ToSocketAddrs;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use saccade_frontend::{
    AccessLogConfig, Cors, FrontendConfig, HttpLimits, Listen, ShutdownHandle, SloDefaults,
    TracesConfig,
};
use saccade_ring::ShmTransport;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{
    DeviceName, HttpArgs, RingPlace, SchedulerPlace, ServeArgs, SpecialTokens, check_lora,
};
use crate::{model_source, open_files, remote, supervised};

/// Bytes from which an allocation has pages of its own, and that may lie free at the heap's end.
const LARGE_ALLOCATION_BYTES: libc::c_int = 256 * 1024;

/// What large bodies and answers took returns to the system. By default glibc raises both
/// thresholds to 32 MB and more with the first one that is freed, and keeps what comes after.
fn return_large_memory() {
    #[cfg(target_env = "gnu")]
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: sets a parameter of the allocator, under the allocator's own lock.
        unsafe { libc::mallopt(parameter, LARGE_ALLOCATION_BYTES) };
    }
}

/// Runs the plane until it has drained after SIGTERM or SIGINT; a second signal ends it at once.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    return_large_memory();
    supervised::die_with_supervisor()?;
    let mut scratch = model_source::Scratch::default();
    let (config, ring) = (config(args, &mut scratch)?, ring(args)?);
    // Connections have threads of their own; this one waits for signals and the end.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let started = |address: &str, handle: ShutdownHandle| {
            if args.http.listen_fd.is_none() {
                eprintln!("  listening on     {address}"); // else the supervisor has said so
            }
            tokio::spawn(end_on_signals(signals, handle));
        };
        match ring {
            RingPlace::File(path) => {
                let transport = ShmTransport::open(path)
                    .with_context(|| format!("--ring {}", path.display()))?;
                Ok(saccade_frontend::serve(config, transport, started).await?)
            }
            RingPlace::Remote(way, address) => {
                let (transport, replaced) = remote::join(&args.ring, *way, address)?;
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

fn config(args: &ServeArgs, scratch: &mut model_source::Scratch) -> anyhow::Result<FrontendConfig> {
    let (model, http) = (&args.model, &args.http);
    http.check()?;
    check_lora(args)?;
    let open_files = open_files::raise()?;
    let max_connections = open_files::max_connections(http.max_connections, open_files)?;
    tracing::info!(max_connections, open_files, "bounds of this frontend plane");
    let folder = model_source::open(&without_weights(args), scratch)?;
    Ok(FrontendConfig {
        listen: match http.listen_fd {
            Some(descriptor) => Listen::Inherited(inherited(descriptor)?),
            None => listen(http)?,
        },
        frontend_index: args.ring.frontend_index,
        model: folder.root().display().to_string(),
        tokenizer: model.tokenizer.clone(),
        revision: None, // the folder is local by now
        served_model_names: model_source::served_names(model),
        adapters: args.lora.adapters(),
        max_adapters: args.lora.max_loras,
        tls: http.tls(),
        access_log: http
            .access_log
            .clone()
            .map(|path| AccessLogConfig { path, sample_rate: http.access_log_sample_rate }),
        traces: http.otlp_traces_endpoint.clone().map(TracesConfig::to),
        allowed_hosts: http.allowed_hosts.clone(),
        api_keys: http.api_key.clone(),
        api_key_file: http.api_key_file.clone(),
        tenants: http.tenants.clone(),
        request_priority: http.enable_request_priority,
        cache_salt_by_key: http.cache_salt_by_key,
        chat_template: model.chat_template.clone(),
        tool_call_parser: model.tool_call_parser,
        require_tool_calls: model.enable_auto_tool_choice,
        reasoning_parser: model.reasoning_parser,
        escape_special_tokens: model.special_tokens_in_content == SpecialTokens::Escape,
        jump_forward: !model.disable_jump_forward,
        max_grammar_steps: model.max_grammar_steps,
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
            max_connections,
            max_body_bytes: http.max_body_bytes,
            least_bytes_per_s: http.min_drain_bytes_per_s,
            stall_timeout: Duration::from_secs(http.stall_timeout_s),
            ..HttpLimits::default()
        },
        request_timeout: (http.request_timeout_s > 0)
            .then(|| Duration::from_secs(http.request_timeout_s)),
        drain_timeout: Duration::from_secs(http.drain_timeout_s),
        device_lost_after: Duration::from_secs(http.device_lost_after_s),
        ui: !http.disable_ui,
        kv_cache_dtype: args.device.kv_cache_dtype.name(),
        ..FrontendConfig::default()
    })
}

/// A scheduler on a GPU makes no system call, so it wakes no reader. Nor can a remote device.
fn reader_poll(args: &ServeArgs) -> Option<Duration> {
    const WAKELESS_POLL: Duration = Duration::from_micros(200);
    let asked = args.http.reader_poll_us.map(Duration::from_micros);
    let on_gpu = matches!(args.device.device, DeviceName::Cuda | DeviceName::CudaNull)
        && args.sim.scheduler == SchedulerPlace::Device;
    let remote = matches!(args.ring.ring, Some(RingPlace::Remote(..)));
    asked.or((on_gpu || remote).then_some(WAKELESS_POLL))
}

/// The frontend needs no weights.
fn without_weights(args: &ServeArgs) -> crate::cli::ModelArgs {
    crate::cli::ModelArgs { load_format: crate::cli::LoadFormat::Dummy, ..args.model.clone() }
}

/// Where the flags say to listen.
pub(crate) fn listen(http: &HttpArgs) -> anyhow::Result<Listen> {
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

/// The socket that the supervisor left open for this process. Called once.
fn inherited(descriptor: RawFd) -> anyhow::Result<Arc<OwnedFd>> {
    anyhow::ensure!(
        descriptor > libc::STDERR_FILENO,
        "--listen-fd is {descriptor}, must be above 2"
    );
    // SAFETY: asks for, and sets, a flag of a descriptor; one that is not open is an error.
    let is_open = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    anyhow::ensure!(is_open, "--listen-fd is {descriptor}, which is not open");
    // SAFETY: it is open, and no one else in this process owns it: it was handed over for this.
    Ok(Arc::new(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}
