//! The desktop shell: a window around [`fastar_app`]. It opens the app, hands its commands to the page, and adds what only a
//! desktop has (dialogs, the browser). No logic of chats or models is here.

#[cfg(target_os = "linux")]
mod awake;
mod browser;
mod closing;
mod commands;
mod dialogs;
mod geometry;
#[cfg(target_os = "linux")]
mod notify;
mod offer;
mod page;
#[cfg(unix)]
mod second;
#[cfg(target_os = "linux")]
mod signals;
mod start;
#[cfg(all(test, target_os = "linux"))]
mod test_bus;
mod window;
mod words;

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
use geometry::Kept;
use page::Page;
#[cfg(target_os = "linux")]
use start::Graphics;
use start::{Drawing, Wish};

/// The whole program.
pub fn main() -> ExitCode {
    let (model, mut drawing, file) = match start::wish(std::env::args_os().skip(1)) {
        Wish::Window {
            model,
            drawing,
            file,
        } => (model, drawing, file),
        Wish::Print(text) => {
            println!("{text}");
            return ExitCode::SUCCESS;
        }
        Wish::Wrong(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let file = file.map(|file| std::path::absolute(&file).unwrap_or(file));
    #[cfg(target_os = "linux")]
    {
        let has_value = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(sentence) = start::missing_display(has_value) {
            eprintln!("{sentence}");
            return ExitCode::FAILURE;
        }
    }
    let options = Options::from_environment(Face::Desktop);
    if let Some(folder) = options.as_ref().ok().and_then(|known| known.folder().ok()) {
        #[cfg(unix)]
        {
            let id = second::id(|name| std::env::var_os(name));
            let file = file.clone();
            if second::shown_by_the_first(&folder, &second::Start { id, file }) {
                if model.is_some() {
                    eprintln!(
                        "FaStar is running already, and its window is shown. --model only counts when it starts."
                    );
                }
                return ExitCode::SUCCESS;
            }
        }
        if drawing == Drawing::Usual && fastar_app::ended_while_opening(&folder) {
            drawing = Drawing::SafeInstead;
        }
    }
    #[cfg(target_os = "linux")]
    {
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let graphics = Graphics {
            nvidia: std::path::Path::new("/sys/module/nvidia").exists(),
            wayland: std::env::var_os("WAYLAND_DISPLAY").is_some_and(|value| !value.is_empty()),
            safe: drawing.is_safe(),
        };
        for (name, value) in start::graphics_variables(&graphics, is_set) {
            // SAFETY: no other thread exists yet: this is among the first things that `main` does.
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
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_filter(tracing_subscriber::EnvFilter::from_default_env());
    tracing_subscriber::registry()
        .with(stderr)
        .with(fastar_app::log_layer())
        .init();
    let opened = options.and_then(|options| {
        App::open(Options {
            model: model.or(options.model),
            notice: drawing.notice(),
            ..options
        })
    });
    match run(opened, drawing, file) {
        Ok(Ended::With(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Ok(Ended::ToStartAgain) => start::again(),
        Err(error) => {
            eprintln!("The window could not be opened: {error}.");
            ExitCode::FAILURE
        }
    }
}

/// How the window ended.
enum Ended {
    With(i32),
    /// It was of no use, and another way to draw is to be tried.
    ToStartAgain,
}

fn run(
    opened: Result<App, ApiError>,
    drawing: Drawing,
    file: Option<PathBuf>,
) -> tauri::Result<Ended> {
    if let Err(error) = &opened {
        eprintln!("{error}");
        // Whoever started FaStar from a terminal has read it; others need a dialog.
        if std::io::stderr().is_terminal() {
            return Ok(Ended::With(1));
        }
    }
    let tauri = tauri::Builder::default()
        .plugin(tauri_plugin_dialog::init())
        .invoke_handler(tauri::generate_handler![
            commands::system::app_info,
            commands::system::page_shown,
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
            commands::system::notify,
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
        .setup(move |tauri| {
            let handle = tauri.handle();
            match opened {
                Ok(app) => {
                    let folder = app.folder().to_owned();
                    handle.manage(Host::start(&app));
                    handle.manage(app);
                    handle.manage(Kept::read(&folder));
                    handle.manage(Page::new(drawing.is_safe()));
                    #[cfg(target_os = "linux")]
                    {
                        signals::end_on_signals(handle);
                        awake::follow(handle);
                    }
                    window::open(handle)?;
                    page::watch(handle)?;
                    #[cfg(unix)]
                    window::hear_further_starts(handle, &folder);
                    if let Some(file) = file {
                        offer::ask(handle, file);
                    }
                }
                Err(error) => dialogs::cannot_start(handle, &error),
            }
            Ok(())
        })
        .build(tauri::generate_context!())?;
    let closing = Closing::default();
    let ending = tauri.handle().clone();
    let code = tauri.run_return(move |handle, event| {
        let Some(app) = handle.try_state::<App>() else {
            return;
        };
        match event {
            RunEvent::WindowEvent { label, event, .. } => {
                if let Some(window) = handle.get_webview_window(&label) {
                    handle.state::<Kept>().hear(&window, &event);
                }
                match event {
                    WindowEvent::CloseRequested { api, .. } if !closing.may_close(handle, &app) => {
                        api.prevent_close();
                    }
                    _ => {}
                }
            }
            RunEvent::Exit => {
                handle.state::<Kept>().write();
                if let Some(host) = handle.try_state::<Host>() {
                    host.stop();
                }
                app.shut_down();
            }
            _ => {}
        }
    });
    let again = ending.try_state::<Page>();
    Ok(if again.is_some_and(|page| page.is_to_start_again()) {
        Ended::ToStartAgain
    } else {
        Ended::With(code)
    })
}
