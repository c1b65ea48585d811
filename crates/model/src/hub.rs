//! Downloads of hub models into the shared cache.

use std::path::PathBuf;
use std::sync::Mutex;

use hf_hub::progress::{DownloadEvent, ProgressEvent, ProgressHandler};
use hf_hub::{HFClient, HFError, HFRepositorySync, repository::RepoTypeModel, split_id};

use crate::error::{ModelError, Result};
use crate::folder::{OpenOptions, ProgressFn};

/// What every model needs.
const SMALL_FILES: [&str; 2] = ["*.json", "*.jinja"];
/// Weights. Nothing else is ever downloaded, least of all pickles.
const WEIGHT_FILES: &str = "*.safetensors";
/// Files in subdirectories, and the second copy of the weights that Mistral repositories carry.
const SKIPPED: [&str; 2] = ["*/*", "consolidated*"];

/// Makes sure that the files of a model are in the cache and returns its snapshot directory.
/// Without network the snapshot that is already there is used, with a warning.
pub(crate) fn snapshot(model: &str, options: &OpenOptions) -> Result<PathBuf> {
    let failed = |error: HFError| hub_error(model, &error);
    let repo = repository(model, options).map_err(failed)?;
    if options.offline || is_offline() {
        return fetch(&repo, options, true).map_err(failed);
    }
    match fetch(&repo, options, false) {
        Err(error @ HFError::Request { .. }) => {
            let cached = fetch(&repo, options, true).map_err(|_| hub_error(model, &error))?;
            tracing::warn!(model, %error, "hub not reached, using the cached snapshot");
            Ok(cached)
        }
        result => result.map_err(failed),
    }
}

type Repo = HFRepositorySync<RepoTypeModel>;

fn repository(model: &str, options: &OpenOptions) -> std::result::Result<Repo, HFError> {
    let mut builder = HFClient::builder();
    if let Some(dir) = &options.cache_dir {
        builder = builder.cache_dir(dir);
    }
    if let Some(token) = &options.token {
        builder = builder.token(token);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.endpoint(endpoint);
    }
    let (owner, name) = split_id(model);
    Ok(builder.build_sync()?.model(owner, name))
}

fn fetch(repo: &Repo, options: &OpenOptions, local: bool) -> std::result::Result<PathBuf, HFError> {
    let mut allow: Vec<String> = SMALL_FILES.map(String::from).into();
    if options.weights {
        allow.push(WEIGHT_FILES.to_owned());
    }
    let bar = options.progress.clone().map(|report| Bar { report, state: Mutex::default() });
    repo.snapshot_download()
        .maybe_revision(options.revision.clone())
        .allow_patterns(allow)
        .ignore_patterns(SKIPPED.map(String::from).into())
        .local_files_only(local)
        .maybe_progress(bar)
        .send()
}

/// `HF_HUB_OFFLINE`, with the values that the Python client takes for true.
fn is_offline() -> bool {
    let value = std::env::var("HF_HUB_OFFLINE").unwrap_or_default();
    matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE")
}

fn hub_error(model: &str, error: &HFError) -> ModelError {
    let hint = match error {
        HFError::AuthRequired { .. } | HFError::Forbidden { .. } => {
            "; set HF_TOKEN to a token that may read it"
        }
        HFError::LocalEntryNotFound { .. } => "; it has not been downloaded yet",
        _ => "",
    };
    ModelError::Hub { model: model.to_owned(), problem: format!("{error}{hint}") }
}

/// Sums the client's per-file events up to bytes done and bytes in all.
struct Bar {
    report: ProgressFn,
    state: Mutex<BarState>,
}

#[derive(Default)]
struct BarState {
    total: u64,
    /// Bytes of files that are reported one by one.
    files: std::collections::HashMap<String, u64>,
    /// Bytes of the batch that is reported as a whole.
    batch: u64,
}

impl ProgressHandler for Bar {
    fn on_progress(&self, event: &ProgressEvent) {
        let ProgressEvent::Download(event) = event else { return };
        // A poisoned lock means that another report panicked; the bar then stops moving.
        let Ok(mut state) = self.state.lock() else { return };
        match event {
            DownloadEvent::Start { total_bytes, .. } => state.total = *total_bytes,
            DownloadEvent::Progress { files } => {
                for file in files {
                    state.files.insert(file.filename.clone(), file.bytes_completed);
                }
            }
            DownloadEvent::AggregateProgress { bytes_completed, .. } => {
                state.batch = *bytes_completed;
            }
            DownloadEvent::Complete => state.batch = state.total,
        }
        let done = state.files.values().sum::<u64>() + state.batch;
        (self.report)(done.min(state.total), state.total);
    }
}
