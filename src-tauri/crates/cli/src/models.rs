//! `fastar models`: what is on this computer, and what can be fetched.

use std::fmt::Write as _;
use std::path::Path;

use fastar_api::{Condition, Library, ModelFile};
use fastar_app::Preferences;
use fastar_app::install::Installer;
use fastar_app::jobs::{Order, Workshop as _};

use crate::arguments::ModelsOptions;
use crate::failure::Failure;
use crate::terminal::{self, Answers};

/// Lists models, or deletes one. Nothing is asked of the network.
pub fn models(options: &ModelsOptions) -> Result<(), Failure> {
    let preferences = Preferences::read()?;
    let folder = options.model_dir.clone();
    let folder = folder.unwrap_or(preferences.models_folder);
    let hub = preferences.hub;
    let library = fastar_app::library(&folder, &Installer::new(move || hub.clone()))?;
    if let Some(file) = &options.delete {
        return delete(&folder, &library, file, options.yes);
    }
    let text = if options.json {
        let json = serde_json::to_string_pretty(&library);
        json.map(|json| format!("{json}\n"))
            .map_err(|e| Failure::Error(format!("The list could not be made: {e}.")))?
    } else {
        described(&library)
    };
    Answers::new().write(&text)
}

fn delete(folder: &Path, library: &Library, file: &str, yes: bool) -> Result<(), Failure> {
    // By its whole name, or without the ending, as everywhere else.
    let stem = format!("{file}.fst");
    let named = |name: &str| library.files.iter().find(|model| model.file == name);
    let Some(model) = named(file).or_else(|| named(&stem)) else {
        return Err(Failure::Error(format!(
            "There is no model {file} in {}.",
            folder.display()
        )));
    };
    let file = &model.file;
    let size = fastar_fst::size(model.disk_bytes);
    if !terminal::agreed(
        yes,
        &format!("Delete {file} from {} ({size})?", folder.display()),
        &format!("Nothing was deleted: {file} has {size}. Run this in a terminal, or add --yes."),
    )? {
        return Err(Failure::Error("Nothing was deleted.".into()));
    }
    let freed = fastar_app::delete_model(folder, file)?;
    Answers::new().write(&format!(
        "Deleted {file}: {} are free again.\n",
        fastar_fst::size(freed)
    ))
}

fn described(library: &Library) -> String {
    let mut text = match (library.files.is_empty(), library.free_bytes) {
        (true, _) => format!("There are no models in {}.\n", library.folder),
        (false, _) => format!("In {}:\n", library.folder),
    };
    // Writing to a string cannot fail.
    for model in &library.files {
        let _ = writeln!(
            text,
            "  {:<44} {}",
            model.file,
            state(Path::new(&library.folder), model)
        );
    }
    if let Some(free) = library.free_bytes {
        let _ = writeln!(text, "  {} free", fastar_fst::size(free));
    }
    text.push_str("\nCan be fetched with `fastar download OWNER/NAME`:\n");
    for entry in &library.catalogue {
        // As `download` fetches it.
        let drafter = entry.drafter_bytes.unwrap_or(0);
        let size = fastar_fst::size(entry.download_bytes.saturating_sub(drafter));
        let _ = writeln!(text, "  {:<44} {size}", entry.repository);
        let _ = writeln!(text, "      {}", entry.about);
    }
    text
}

/// What can be done with a model.
fn state(folder: &Path, model: &ModelFile) -> String {
    match &model.condition {
        Condition::Whole => match linked(&folder.join(&model.file)) {
            Some(linked) => linked,
            None => fastar_fst::size(model.disk_bytes),
        },
        Condition::Unusable { error } => format!("cannot be used. {error}"),
        Condition::Incomplete {
            done_bytes,
            total_bytes,
            ..
        } => incomplete(folder, &model.file, *done_bytes, *total_bytes),
    }
}

/// Size and place of the file that a link leads to: the link itself takes next to nothing. None for what is no link.
fn linked(path: &Path) -> Option<String> {
    let to = std::fs::read_link(path).ok()?;
    let size = fastar_fst::size(std::fs::metadata(path).ok()?.len());
    Some(format!("{size}, a link to {}", to.display()))
}

fn incomplete(folder: &Path, file: &str, done: u64, total: Option<u64>) -> String {
    let done = fastar_fst::size(done);
    let text = match total {
        Some(total) => format!("incomplete, {done} of {}", fastar_fst::size(total)),
        None => format!("incomplete, {done}"),
    };
    let installer = Installer::new(fastar_hub::Settings::default);
    match installer.leftover(folder, file) {
        Some(left) => format!("{text}; `{}` goes on", command(&left.order)),
        None => format!("{text}; the command that began it goes on"),
    }
}

/// The command that goes on with a download, whole.
fn command(order: &Order) -> String {
    let mut text = format!("fastar download {}", order.repository);
    if order.revision != "main" {
        let _ = write!(text, " --revision {}", order.revision);
    }
    if order.drafter {
        text.push_str(" --with-drafter");
    }
    let _ = write!(text, " --to {}", fastar_fst::quoted(&order.folder));
    text
}

/// What to say of a folder that has no whole model of this name: that it is unfinished, or which ones there are.
pub fn there_are(folder: &Path, name: &str) -> String {
    let installer = Installer::new(fastar_hub::Settings::default);
    let files = fastar_app::library(folder, &installer).map_or(Vec::new(), |library| library.files);
    let named = files.iter().find(|model| {
        (model.name == name || model.file == name) && model.condition != Condition::Whole
    });
    if let Some(model) = named {
        return format!("{} is {}.", model.file, state(folder, model));
    }
    let whole: Vec<&str> = files
        .iter()
        .filter(|model| model.condition == Condition::Whole)
        .map(|model| model.name.as_str())
        .collect();
    match whole.as_slice() {
        [] => "There are no models yet; `fastar models` shows what can be fetched.".to_owned(),
        [one] => format!("The only one there is {one}."),
        some => format!("There are {}.", some.join(", ")),
    }
}

/// What to say of a folder without a model, where something unfinished lies in it.
pub fn unfinished(folder: &Path) -> Option<String> {
    let installer = Installer::new(fastar_hub::Settings::default);
    let library = fastar_app::library(folder, &installer).ok()?;
    let model = library
        .files
        .iter()
        .find(|model| matches!(model.condition, Condition::Incomplete { .. }))?;
    Some(format!("{} is {}.", model.file, state(folder, model)))
}
