//! Signals that ask the program to end: the end of a session, Ctrl+C, a terminal that is closed. They end it as closing the window does,
//! but nobody is there to be asked, and nothing is lost by it.

use gtk::glib;
use tauri::AppHandle;

const HANGUP: i32 = 1;
const INTERRUPT: i32 = 2;
const TERMINATE: i32 = 15;

/// Ends the app on such a signal from now on. Called on the main thread, whose loop hears them.
pub(crate) fn end_on_signals(handle: &AppHandle) {
    let ignored =
        std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored_signals(&status));
    for signal in [HANGUP, INTERRUPT, TERMINATE] {
        // Under nohup a program goes on.
        if ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        let handle = handle.clone();
        glib::unix_signal_add_local(signal, move || {
            handle.exit(0);
            glib::ControlFlow::Continue
        });
    }
}

/// The signals that a process ignores, a bit each, as Linux tells them.
fn ignored_signals(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_as_linux_writes_them() {
        let status = "Name:\tfastar\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored_signals(status), 0x1001);
        assert_eq!(ignored_signals("Name:\tfastar\n"), 0);
    }
}
