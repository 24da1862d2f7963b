//! What the system lets this program have, looked at before anything begins: some of what is below could only panic or wait for ever for
//! files and memory that it does not get. Threads have a place of their own, [`fastar_kernels::threads`].

#[cfg(unix)]
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::failure::Failure;

/// A file that grows beyond `ulimit -f` is then an error like a full disk, and not the end of the program without a word.
#[cfg(unix)]
pub fn too_large_files_are_errors() {
    // SAFETY: nothing is run by the signal, which is ignored from here on.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

#[cfg(not(unix))]
pub fn too_large_files_are_errors() {}

/// Files and connections that are open at once at most, generously.
const FILES: u64 = 64;
/// As many as are asked for where that is only a matter of asking: a download has many connections.
const FILES_WISHED: u64 = 4096;
/// Address space of the program, its threads' stacks, and small models.
const ADDRESSES: u64 = 512 << 20;
/// The same where a file is read piece by piece: the program, its two threads, and what the C library reserves for them.
const ADDRESSES_FOR_PIECES: u64 = 256 << 20;
/// What each thread takes of it, besides its stack: the C library reserves memory for each.
const ADDRESSES_OF_A_THREAD: u64 = 64 << 20;

/// What a command is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Load a model, serve, or fetch: on many threads.
    Large,
    /// Read a file piece by piece, on one thread.
    Pieces,
}

/// Whether there is enough for this work. With fewer files allowed than could be had, more are asked for.
#[cfg(unix)]
pub fn check(work: Work) -> Result<(), Failure> {
    let files = getrlimit(Resource::Nofile);
    if let Some(now) = files.current.filter(|now| *now < FILES_WISHED) {
        let most = files.maximum.unwrap_or(FILES_WISHED).min(FILES_WISHED);
        let mut wished = files;
        wished.current = Some(most.max(now));
        if let Err(error) = setrlimit(Resource::Nofile, wished) {
            tracing::debug!(%error, "no more files than before");
        }
    }
    let files = getrlimit(Resource::Nofile).current;
    if let Some(few) = files.filter(|files| *files < FILES) {
        return Err(Failure::Error(format!(
            "This computer lets FaStar open only {few} files at once, and it needs {FILES}. Raise the limit (`ulimit -n {FILES_WISHED}`) and try again."
        )));
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let (needed, and) = match work {
        // Those that compute, that read, and that serve.
        Work::Large => (
            ADDRESSES + (2 * threads + 8) * ADDRESSES_OF_A_THREAD,
            " and as much as the model has",
        ),
        Work::Pieces => (ADDRESSES_FOR_PIECES, ""),
    };
    let addresses = getrlimit(Resource::As).current;
    if let Some(few) = addresses.filter(|bytes| *bytes < needed) {
        let (few, needed) = apart(few, needed);
        return Err(Failure::Error(format!(
            "This computer lets FaStar use only {few} of address space, and it needs {needed}{and}. Raise the limit (`ulimit -v unlimited`) and try again."
        )));
    }
    Ok(())
}

/// Finds out whether so many more threads can be started.
///
/// A program that did not even get the [thread](crate::main) it works on goes on without, but gets that one, too, as soon as the limit is raised: what is
/// said to suffice counts it.
pub fn room(threads: usize) -> Result<(), fastar_kernels::threads::Refused> {
    let not_there = usize::from(std::thread::current().name() != Some(crate::THREAD));
    fastar_kernels::threads::room(threads + not_there)
}

/// Two different sizes in words that differ.
#[cfg(unix)]
fn apart(few: u64, more: u64) -> (String, String) {
    let words = [few, more].map(fastar_fst::size);
    let [few, more] = match words[0] == words[1] {
        true => [few, more].map(|bytes| format!("{bytes} bytes")),
        false => words,
    };
    (few, more)
}

/// Whether the stack of the first thread may grow to so many bytes.
#[cfg(unix)]
pub fn first_stack_has(bytes: usize) -> bool {
    let stack = getrlimit(Resource::Stack).current;
    stack.is_none_or(|most| most >= bytes as u64)
}

#[cfg(not(unix))]
pub fn first_stack_has(_bytes: usize) -> bool {
    false
}

#[cfg(not(unix))]
pub fn check(_work: Work) -> Result<(), Failure> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn two_sizes_never_read_the_same() {
        let words = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(apart(307_200_000, 1_342_177_280), words("307 MB", "1.3 GB"));
        assert_eq!(
            apart(1_300_480_000, 1_342_177_280),
            words("1300480000 bytes", "1342177280 bytes")
        );
    }
}
