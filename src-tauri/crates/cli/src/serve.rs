//! `fastar serve`: the web interface on this computer, for who has the address with the key.

use std::sync::Arc;

use fastar_api::Face;
use fastar_app::App;

use crate::arguments::ServeOptions;
use crate::failure::Failure;
use crate::interrupt::Signals;
use crate::terminal::{self, Answers};
use crate::{interrupt, limits, model};

/// Threads for the commands of pages, for the app's own work and for a small model; a large one starts more and says when it cannot.
const APP_THREADS: usize = 16;

/// Takes the port first, so that a taken one is known before anything slow, then opens the app and serves until asked to end, which may be at once.
pub fn serve(options: &ServeOptions) -> Result<(), Failure> {
    limits::check(limits::Work::Large)?;
    // The other runtime hears for both once it is there.
    let (_until_then, signals) = interrupt::listen_first()?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    // The runtime would panic or wait for ever for threads that do not come.
    limits::room(workers + APP_THREADS)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|e| Failure::Error(format!("The server's threads could not be started: {e}.")))?;
    runtime.block_on(answer(options, signals))
}

async fn answer(options: &ServeOptions, mut signals: Signals) -> Result<(), Failure> {
    let bound = fastar_server::bind(options.port).await?;
    let mut settings = fastar_app::Options::from_environment(Face::Web).map_err(sentence)?;
    if let Some(path) = model::file(options.model.as_deref(), options.model_dir.as_deref())? {
        // Whether it is a model that can answer is said here; the app would start with the demo instead.
        if !fastar_fst::inspect(&path)?.tokenizer {
            return Err(model::without_tokenizer(&model::name(&path)));
        }
        settings.model = Some(path);
    }
    settings.cache_bytes = options.cache;
    settings.told = Some(Arc::new(|sentence| {
        terminal::note(&format!("fastar: {sentence}"));
    }));
    let given = &options.sampling;
    settings.sampling = fastar_app::GivenSampling {
        temperature: given.temp.or(settings.sampling.temperature),
        top_p: given.top_p,
        seed: given.seed,
        max_tokens: given.tokens,
    };
    let app = tokio::task::spawn_blocking(move || App::open(settings))
        .await
        .map_err(|e| Failure::Error(format!("The app could not be opened: {e}.")))?
        .map_err(sentence)?;
    for notice in app.app_info().notices {
        terminal::note(&format!("fastar: {notice}"));
    }
    let key = match options.no_key {
        true => None,
        false => Some(app.server_key().map_err(sentence)?),
    };
    // Behind the #: a browser sends that to nobody, and the page takes it out of its address.
    let fragment = key.as_ref().map(|key| format!("#key={key}"));
    Answers::new().write(&format!(
        "FaStar is at http://{}/{} (Ctrl+C ends it)\n",
        bound.address(),
        fragment.unwrap_or_default()
    ))?;
    // One that came meanwhile ends it here.
    let until = async move {
        signals.next().await;
    };
    bound.serve(app, key, until).await?;
    Ok(())
}

fn sentence(error: fastar_api::ApiError) -> Failure {
    Failure::Error(error.to_string())
}
