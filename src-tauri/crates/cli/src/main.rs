//! The `fastar` command: chat in the terminal, answer one prompt, serve the web interface, and
//! fetch, convert or look into model files.
//!
//! Only the answer goes to stdout; everything else a person reads goes to stderr. Exit codes: 0 done, 1 an error (one sentence on
//! stderr), 2 wrong usage, 130 stopped with Ctrl+C (143 with SIGTERM, 131 with SIGQUIT). Nothing here computes; the work is in the crates below.

mod arguments;
mod bench;
mod chat;
mod doctor;
mod download;
#[cfg(target_os = "linux")]
mod early;
mod failure;
mod interrupt;
mod limits;
mod logits;
mod model;
mod models;
mod once;
mod progress;
mod prompt;
mod serve;
mod simulate;
mod temporary;
mod terminal;
mod tools;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::thread::Builder;

use clap::Parser as _;
use fastar_kernels::threads;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use arguments::{Arguments, Command};
use failure::Failure;

/// Whatever `ulimit -s` leaves to the first thread of a process, which may be less than reading the command line takes.
const STACK_BYTES: usize = 8 << 20;
/// Name of the thread with that stack.
const THREAD: &str = "fastar";

fn main() -> ExitCode {
    limits::too_large_files_are_errors();
    let thread = Builder::new().name(THREAD.into()).stack_size(STACK_BYTES);
    match threads::start_with(thread, fastar).map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // What happened was told where it happened.
        Ok(Err(_)) => ExitCode::from(101),
        // What needs threads says how many; what needs none is done.
        Err(_) if limits::first_stack_has(STACK_BYTES) => fastar(),
        Err(refused) => {
            terminal::note(&format!("fastar: {refused}"));
            ExitCode::FAILURE
        }
    }
}

fn fastar() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            // Where even that cannot be written there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(error.exit_code().clamp(0, 255) as u8);
        }
        // Help and version are what was asked for.
        Err(help) => return ended(terminal::printed(|| help.print())),
    };
    ended(
        start_log()
            .and_then(|()| arguments.command())
            .and_then(perform),
    )
}

/// The exit code of an outcome, which is said where a person should know why.
fn ended(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(sentence) = failure.sentence() {
                terminal::note(&format!("fastar: {sentence}"));
            }
            failure.exit_code()
        }
    }
}

fn perform(command: Command) -> Result<(), Failure> {
    match command {
        Command::Chat(options) => chat::chat(&options),
        Command::Run(options) => once::run(&options),
        Command::Serve(options) => serve::serve(&options),
        Command::Download(options) => download::download(&options),
        Command::Models(options) => models::models(&options),
        Command::Doctor => doctor::doctor(),
        Command::Convert(options) => tools::convert(&options),
        Command::Upgrade(options) => tools::upgrade(&options),
        Command::Inspect(options) => tools::inspect(&options),
        Command::Verify(options) => tools::verify(&options),
        Command::Repair(options) => tools::repair(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::Simulate(options) => simulate::simulate(&options),
        Command::Logits(options) => logits::logits(&options),
    }
}

/// Logs go to stderr, and only when asked for with FASTAR_LOG or RUST_LOG (for example `debug`). The app keeps its own once it is open.
fn start_log() -> Result<(), Failure> {
    let Some((name, filter)) = ["FASTAR_LOG", "RUST_LOG"]
        .into_iter()
        .find_map(|name| Some((name, std::env::var(name).ok()?)))
        .filter(|(_, filter)| !filter.is_empty())
    else {
        tracing_subscriber::registry()
            .with(fastar_app::log_layer())
            .init();
        return Ok(());
    };
    let filter = tracing_subscriber::EnvFilter::try_new(&filter).map_err(|e| {
        Failure::Usage(format!(
            "{name} is {filter:?}, which is not a log filter ({e})."
        ))
    })?;
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_filter(filter);
    tracing_subscriber::registry()
        .with(stderr)
        .with(fastar_app::log_layer())
        .init();
    Ok(())
}
