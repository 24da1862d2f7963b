//! The desktop shell: a window around [`fastar_app`]. It opens the app, hands its commands to the page, and adds what only a
//! desktop has (dialogs, the browser). No logic of chats or models is here.

mod browser;
mod closing;
mod commands;
mod dialogs;
mod start;
mod window;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use fastar_api::{ApiError, Face};
use fastar_app::{App, Options};
use fastar_server::Host;
use tauri::{Manager, RunEvent, WindowEvent};
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use closing::Closing;
use start::{Graphics, Wish};

/// The whole program.
pub fn main() -> ExitCode {
    let (model, safe) = match start::wish(std::env::args_os().skip(1)) {
        Wish::Window {
            model,
            safe_graphics,
        } => (model, safe_graphics),
        Wish::Print(text) => {
            println!("{text}");
            return ExitCode::SUCCESS;
        }
        Wish::Wrong(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    #[cfg(target_os = "linux")]
    {
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let has_value = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(sentence) = start::missing_display(has_value) {
            eprintln!("{sentence}");
            return ExitCode::FAILURE;
        }
        let graphics = Graphics {
            nvidia: std::path::Path::new("/sys/module/nvidia").exists(),
            wayland: has_value("WAYLAND_DISPLAY"),
            safe,
        };
        for (name, value) in start::graphics_variables(&graphics, is_set) {
            // SAFETY: no other thread exists yet: this is the first thing that `main` does.
            unsafe { std::env::set_var(name, value) };
        }
        // The window's own library would panic.
        if gtk::init().is_err() {
            eprintln!(
                "{}",
                start::unreachable_display(|name| std::env::var_os(name))
            );
            return ExitCode::FAILURE;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = safe;
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_filter(tracing_subscriber::EnvFilter::from_default_env());
    tracing_subscriber::registry()
        .with(stderr)
        .with(fastar_app::log_layer())
        .init();
    match run(model) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("The window could not be opened: {error}.");
            ExitCode::FAILURE
        }
    }
}

fn open_app(model: Option<PathBuf>) -> Result<App, ApiError> {
    let mut options = Options::from_environment(Face::Desktop)?;
    options.model = model.or(options.model);
    App::open(options)
}

fn run(model: Option<PathBuf>) -> tauri::Result<i32> {
    let opened = open_app(model);
    if let Err(error) = &opened {
        eprintln!("{error}");
        // Whoever started FaStar from a terminal has read it; others need a dialog.
        if std::io::stderr().is_terminal() {
            return Ok(1);
        }
    }
    let tauri = tauri::Builder::default()
        .plugin(tauri_plugin_dialog::init())
        .invoke_handler(tauri::generate_handler![
            commands::system::app_info,
            commands::models::model_state,
            commands::models::model_memory,
            commands::models::model_choose,
            commands::models::model_use_demo,
            commands::models::model_library,
            commands::models::model_folder_choose,
            commands::models::model_folder_move,
            commands::models::model_use,
            commands::models::model_show,
            commands::models::model_delete,
            commands::models::model_verify,
            commands::models::model_repair,
            commands::jobs::download_start,
            commands::jobs::download_resume,
            commands::jobs::job_list,
            commands::jobs::job_pause,
            commands::jobs::job_resume,
            commands::jobs::job_cancel,
            commands::jobs::job_dismiss,
            commands::chat::chat_list,
            commands::chat::chat_open,
            commands::chat::chat_rename,
            commands::chat::chat_delete,
            commands::chat::chat_restore,
            commands::chat::chat_pin,
            commands::chat::chat_move,
            commands::chat::chat_system_set,
            commands::chat::chat_search,
            commands::chat::chat_export,
            commands::chat::chat_import,
            commands::chat::preset_list,
            commands::chat::preset_save,
            commands::chat::preset_delete,
            commands::chat::draft_new,
            commands::chat::draft_save,
            commands::chat::attachment_pick,
            commands::chat::message_count,
            commands::chat::message_send,
            commands::chat::message_edit,
            commands::chat::message_regenerate,
            commands::chat::answer_continue,
            commands::chat::answer_edit,
            commands::chat::version_show,
            commands::chat::generation_attach,
            commands::chat::generation_stop,
            commands::system::link_open,
            commands::settings::setting_list,
            commands::settings::setting_set,
            commands::settings::setting_reset,
            commands::settings::cache_plan,
            commands::settings::model_reload,
            commands::server::server_state,
            commands::server::server_key,
            commands::server::server_key_new,
            commands::system::monitor,
            commands::system::trace_start,
            commands::system::trace_stop,
            commands::system::hardware,
            commands::system::machine_plan,
            commands::system::machine_measure,
            commands::system::log_read,
            commands::system::diagnostics,
        ])
        .setup(|tauri| {
            let handle = tauri.handle();
            match opened {
                Ok(app) => {
                    handle.manage(Host::start(&app));
                    handle.manage(app);
                    window::open(handle)?;
                }
                Err(error) => dialogs::cannot_start(handle, &error),
            }
            Ok(())
        })
        .build(tauri::generate_context!())?;
    let closing = Closing::default();
    Ok(tauri.run_return(move |handle, event| {
        let Some(app) = handle.try_state::<App>() else {
            return;
        };
        match event {
            RunEvent::WindowEvent {
                event: WindowEvent::CloseRequested { api, .. },
                ..
            } if !closing.may_close(handle, &app) => api.prevent_close(),
            RunEvent::Exit => {
                if let Some(host) = handle.try_state::<Host>() {
                    host.stop();
                }
                app.shut_down();
            }
            _ => {}
        }
    }))
}
