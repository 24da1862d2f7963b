//! What has to be seen before the runtime begins: whether the standard output was closed, and whether the first thread has a stack at all.

use std::sync::atomic::{AtomicBool, Ordering};

/// Of the first thread, which holds the command line and the environment as well and starts the runtime.
const LEAST_STACK: libc::rlim_t = 32 << 10;
const NO_STACK: &[u8] = b"fastar: This computer lets FaStar use less than 32 KiB of stack. Raise the limit (`ulimit -s 8192`) and try again.\n";

static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether this program was started with its standard output closed (`>&-`). The runtime opens the null device in its place, so that no other
/// file gets its number, and what is printed would vanish without an error.
pub fn output_was_closed() -> bool {
    OUTPUT_WAS_CLOSED.load(Ordering::Relaxed)
}

#[used]
// SAFETY: the loader calls what this section lists once, on the only thread, before `main`; `look` has the form it calls.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Uses next to no stack and nothing of the runtime.
extern "C" fn look() {
    // SAFETY: plain calls of the system; the pointers are to a local and to a constant of that length.
    unsafe {
        let mut stack = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        if libc::getrlimit(libc::RLIMIT_STACK, &raw mut stack) == 0 && stack.rlim_cur < LEAST_STACK
        {
            libc::write(
                libc::STDERR_FILENO,
                NO_STACK.as_ptr().cast(),
                NO_STACK.len(),
            );
            libc::_exit(1);
        }
        let flags = libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD);
        OUTPUT_WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
    }
}
