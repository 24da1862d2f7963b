//! Being asked to end. Ctrl+C stops the answer that is being written; it ends the program where there is none, or when pressed again. SIGTERM, and
//! a terminal that is closed, stop long work the same way and end everything else at once. Whichever it is, a temporary folder and another
//! engine's program that is being measured do not outlive this one.
//!
//! SIGQUIT (Ctrl+\) counts as SIGTERM does, and leaves no core dump: gigabytes of weights are in it, and a model that was made to be measured would be
//! left on the disk. Who wants a dump sends SIGABRT.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fastar_app::jobs::Steering;
use fastar_engine::Cancel;
use fastar_kernels::threads;

use crate::failure::Failure;
use crate::limits;

/// What shells add to a signal's number.
const SIGNALLED: u8 = 128;
const SIGHUP: u8 = 1;
const SIGINT: u8 = 2;
const SIGQUIT: u8 = 3;
const SIGTERM: u8 = 15;

/// The signal that came last.
static LAST: AtomicU8 = AtomicU8::new(SIGINT);
/// The work that the next signal stops.
static CURRENT: Mutex<Option<Work>> = Mutex::new(None);
/// A folder or file that must not outlive the program.
static TEMPORARY: Mutex<Option<PathBuf>> = Mutex::new(None);
/// Looked at by work on model files.
static FILE_WORK: AtomicBool = AtomicBool::new(false);

enum Work {
    Answer(Cancel),
    File,
    Job(Arc<Steering>),
}

/// What a stopped program ends with: 128 and the number of the signal, as shells have it.
pub fn exit_code() -> u8 {
    SIGNALLED + LAST.load(Ordering::Relaxed)
}

/// Takes over Ctrl+C and the like. Called once, before anything slow; what the system gives is [looked at](limits::check) here, too.
pub fn take_over() -> Result<(), Failure> {
    take_over_for(limits::Work::Large, 0)
}

/// The same for a command that will start so many threads itself: where they cannot all be had it is said now, and of all of them.
pub fn take_over_with(more: usize) -> Result<(), Failure> {
    take_over_for(limits::Work::Large, more)
}

/// The same for a command that reads a file piece by piece and needs little.
pub fn take_over_for_pieces() -> Result<(), Failure> {
    take_over_for(limits::Work::Pieces, 0)
}

fn take_over_for(need: limits::Work, more: usize) -> Result<(), Failure> {
    limits::check(need)?;
    let (runtime, mut signals) = listen_first()?;
    limits::room(1 + more)?;
    let work = move || {
        runtime.block_on(async {
            loop {
                let signal = signals.next().await;
                asked_to_end(signal);
            }
        });
    };
    threads::start("fastar-signals", work)?;
    Ok(())
}

/// Hears signals before there are threads or anything else that takes time, which only the [look](limits::check) at what can be had comes before. The
/// runtime is what hears them, as long as no other one is there.
pub fn listen_first() -> Result<(tokio::runtime::Runtime, Signals), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(not_taken_over)?;
    let signals = {
        let _entered = runtime.enter();
        Signals::on_this_runtime().map_err(not_taken_over)?
    };
    Ok((runtime, signals))
}

/// The signals that ask a program to end, heard from [listening](listen_first) on: none that comes later is lost or ends the program by itself.
#[cfg(unix)]
pub struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
    /// None where it is ignored, as `nohup` has it.
    hang_up: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn on_this_runtime() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            hang_up: match is_ignored(SIGHUP) {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    /// The number of the next one.
    async fn number(&mut self) -> u8 {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => SIGINT,
            _ = self.terminate.recv() => SIGTERM,
            _ = self.quit.recv() => SIGQUIT,
            _ = hang_up => SIGHUP,
        }
    }
}

impl Signals {
    /// Waits for the next one; says which it was, for the [exit code](exit_code) too.
    pub async fn next(&mut self) -> u8 {
        let signal = self.number().await;
        LAST.store(signal, Ordering::Relaxed);
        signal
    }
}

fn not_taken_over(error: std::io::Error) -> Failure {
    Failure::Error(format!("Ctrl+C could not be taken over: {error}."))
}

/// Whether this program was started with a signal ignored. Where nothing tells, it is left alone.
#[cfg(unix)]
fn is_ignored(signal: u8) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(not(unix))]
pub struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn on_this_runtime() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn number(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => SIGINT,
            Err(_) => std::future::pending().await,
        }
    }
}

fn asked_to_end(signal: u8) {
    let stopped = match &*current() {
        // The second time the person means the program, and so does who sends anything else than Ctrl+C.
        Some(Work::Answer(cancel)) if signal == SIGINT && !cancel.is_cancelled() => {
            cancel.cancel();
            true
        }
        Some(Work::File) if !FILE_WORK.load(Ordering::Relaxed) => {
            FILE_WORK.store(true, Ordering::Relaxed);
            true
        }
        Some(Work::Job(steering)) if !steering.is_stopped() => {
            steering.stop();
            true
        }
        _ => false,
    };
    if !stopped {
        fastar_bench::end_peer();
        if let Some(folder) = temporary().take() {
            // The work may put something new into it meanwhile. What stays nevertheless the next run finds.
            let mut tries = 0..3;
            while remove(&folder).is_err() && tries.next().is_some() {}
        }
        std::process::exit(i32::from(exit_code()));
    }
}

/// Removes a folder with what is in it, or a file.
fn remove(path: &Path) -> std::io::Result<()> {
    match path.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    }
}

/// While `work` runs, a signal that ends the program at once removes this folder or file first.
pub fn removes<R>(folder: &Path, work: impl FnOnce() -> R) -> R {
    *temporary() = Some(folder.to_owned());
    let result = work();
    *temporary() = None;
    result
}

/// While `work` runs, Ctrl+C sets `cancel`.
pub fn stops<R>(cancel: &Cancel, work: impl FnOnce() -> R) -> R {
    *current() = Some(Work::Answer(cancel.clone()));
    let result = work();
    *current() = None;
    result
}

/// While `work` runs, Ctrl+C sets the flag it is given.
pub fn stops_work<R>(work: impl FnOnce(&'static AtomicBool) -> R) -> R {
    *current() = Some(Work::File);
    let result = work(&FILE_WORK);
    *current() = None;
    result
}

/// While `work` runs, Ctrl+C stops it.
pub fn stops_job<R>(steering: &Arc<Steering>, work: impl FnOnce() -> R) -> R {
    *current() = Some(Work::Job(Arc::clone(steering)));
    let result = work();
    *current() = None;
    result
}

fn temporary() -> std::sync::MutexGuard<'static, Option<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn current() -> std::sync::MutexGuard<'static, Option<Work>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}
