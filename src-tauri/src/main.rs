//! The desktop program. Everything that must happen before the first thread happens here.
#![cfg_attr(not(debug_assertions), windows_subsystem = "windows")]

fn main() -> std::process::ExitCode {
    fastar_desktop::main()
}
