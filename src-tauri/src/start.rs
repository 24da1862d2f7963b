//! What happens before the window: the command line, the graphics variables, and whether there is a display. Pure functions of their
//! inputs; `main` applies them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Open the window.
    Window {
        /// A model file for this run.
        model: Option<PathBuf>,
        /// How to draw.
        drawing: Drawing,
        /// A model file that the person may want to use; it is asked about and not loaded.
        file: Option<PathBuf>,
    },
    /// Print this and end well.
    Print(String),
    /// Print this to the error output and end with 2.
    Wrong(String),
}

/// How the window is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawing {
    /// As WebKitGTK does it.
    Usual,
    /// Without the graphics card, because the person wants it so.
    Safe,
    /// The same, because the window did not come up otherwise.
    SafeInstead,
}

impl Drawing {
    pub(crate) fn is_safe(self) -> bool {
        self != Self::Usual
    }

    /// What the person is told in the window.
    pub(crate) fn notice(self) -> Option<String> {
        (self == Self::SafeInstead).then(|| {
            "FaStar could not show its window, so it is drawn without the graphics card this time. Start FaStar with --safe-graphics to have it \
             so from the beginning; a newer graphics driver may mend it."
                .into()
        })
    }
}

/// Begins a start that takes the place of one whose window stayed empty.
pub(crate) const SAFE_INSTEAD: &str = "--safe-graphics=instead";

const HELP: &str = "FaStar: chat with DeepSeek V4 Flash on your own computer

Usage: fastar-desktop [--model FILE] [--safe-graphics] [FILE]

  FILE              ask whether to use this .fst model from now on
  --model FILE      use this .fst model for this run
  --safe-graphics   draw without the graphics card, if the window stays blank
  --version         print the version
  --help            print this

FASTAR_DATA_DIR chooses the folder for chats and settings.";

/// Reads the arguments after the program's name.
pub(crate) fn wish(arguments: impl IntoIterator<Item = OsString>) -> Wish {
    let mut model = None;
    let mut drawing = Drawing::Usual;
    let mut file = None;
    let mut only_files = false;
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let is_option = |text: &str| text.starts_with('-') && text.len() > 1;
        if only_files || !argument.to_str().is_some_and(is_option) {
            if file.replace(PathBuf::from(argument)).is_some() {
                return Wish::Wrong("Only one model file can be opened at a time.".into());
            }
            continue;
        }
        match argument.to_str() {
            Some("--") => only_files = true,
            Some("--model") => match arguments.next() {
                Some(file) => model = Some(PathBuf::from(file)),
                None => return Wish::Wrong("--model needs a file.".into()),
            },
            Some("--safe-graphics") => drawing = Drawing::Safe,
            Some(SAFE_INSTEAD) => drawing = Drawing::SafeInstead,
            Some("--version" | "-V") => {
                return Wish::Print(format!("FaStar {}", env!("CARGO_PKG_VERSION")));
            }
            Some("--help" | "-h") => return Wish::Print(HELP.into()),
            other => {
                if let Some(file) = other.and_then(|text| text.strip_prefix("--model=")) {
                    model = Some(PathBuf::from(file));
                    continue;
                }
                return Wish::Wrong(format!(
                    "Unknown argument {}. See --help.",
                    argument.to_string_lossy()
                ));
            }
        }
    }
    Wish::Window {
        model,
        drawing,
        file,
    }
}

/// Takes the place of this process, whose window did not come up. Returns only when that is not possible.
pub(crate) fn again() -> ExitCode {
    let sentence =
        "The window stayed empty. FaStar starts again and draws it without the graphics card.";
    eprintln!("{sentence}");
    let mut program = std::env::current_exe().map(Command::new);
    let started = program.as_mut().map(|program| {
        program.arg(SAFE_INSTEAD).args(std::env::args_os().skip(1));
        #[cfg(unix)]
        return std::os::unix::process::CommandExt::exec(program);
        #[cfg(not(unix))]
        return program.spawn().err();
    });
    eprintln!("It could not be started again ({started:?}). Start it with --safe-graphics.");
    ExitCode::FAILURE
}

/// What decides how WebKitGTK should draw.
pub(crate) struct Graphics {
    pub(crate) nvidia: bool,
    pub(crate) wayland: bool,
    pub(crate) safe: bool,
}

/// Variables to set. NVIDIA's driver and WebKitGTK's DMA-BUF renderer together leave the window blank, and explicit sync breaks Wayland.
/// Compositing is never switched off: that breaks more than it mends.
pub(crate) fn graphics_variables(
    graphics: &Graphics,
    is_set: impl Fn(&str) -> bool,
) -> Vec<(&'static str, &'static str)> {
    let mut variables = Vec::new();
    if graphics.nvidia && graphics.wayland {
        variables.push(("__NV_DISABLE_EXPLICIT_SYNC", "1"));
    }
    if graphics.nvidia || graphics.safe {
        variables.push(("WEBKIT_DISABLE_DMABUF_RENDERER", "1"));
    }
    if graphics.safe {
        variables.push(("WEBKIT_SKIA_ENABLE_CPU_RENDERING", "1"));
    }
    // The person's own setting stays, whatever it is.
    variables.retain(|(name, _)| !is_set(name));
    variables
}

/// A sentence when there is nothing to draw on.
pub(crate) fn missing_display(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    (!is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY")).then_some(
        "There is no display to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is set); use `fastar serve` and a browser instead.",
    )
}

/// A sentence when the display that the environment names does not answer.
pub(crate) fn unreachable_display(value: impl Fn(&str) -> Option<OsString>) -> String {
    let named: Vec<String> = ["WAYLAND_DISPLAY", "DISPLAY"]
        .into_iter()
        .filter_map(|name| {
            let value = value(name).filter(|value| !value.is_empty())?;
            Some(format!("{name} is {}", value.to_string_lossy()))
        })
        .collect();
    format!(
        "The display to open a window on cannot be reached ({}); use `fastar serve` and a browser instead.",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish_of(arguments: &[&str]) -> Wish {
        wish(arguments.iter().map(OsString::from))
    }

    #[test]
    fn the_command_line_is_read_or_refused_with_a_sentence() {
        let window = |model: Option<&str>, drawing, file: Option<&str>| Wish::Window {
            model: model.map(PathBuf::from),
            drawing,
            file: file.map(PathBuf::from),
        };
        assert_eq!(wish_of(&[]), window(None, Drawing::Usual, None));
        let model = window(Some("a b.fst"), Drawing::Safe, None);
        assert_eq!(wish_of(&["--model", "a b.fst", "--safe-graphics"]), model);
        assert_eq!(wish_of(&["--safe-graphics", "--model=a b.fst"]), model);
        let file = |name| window(None, Drawing::Usual, Some(name));
        assert_eq!(wish_of(&["a b.fst"]), file("a b.fst"));
        assert_eq!(wish_of(&["--", "-x.fst"]), file("-x.fst"));
        let again = window(None, Drawing::SafeInstead, Some("a"));
        assert_eq!(wish_of(&["a", SAFE_INSTEAD]), again);
        assert!(matches!(wish_of(&["a", "b"]), Wish::Wrong(text) if text.contains("one model")));
        assert_eq!(wish_of(&["--version"]), Wish::Print("FaStar 0.1.0".into()));
        assert!(matches!(wish_of(&["--help"]), Wish::Print(text) if text.contains("--model FILE")));
        assert!(
            matches!(wish_of(&["--model"]), Wish::Wrong(text) if text.contains("needs a file"))
        );
        assert!(matches!(wish_of(&["--modell"]), Wish::Wrong(text) if text.contains("--modell")));
    }

    #[test]
    fn graphics_variables_are_set_for_nvidia_only_and_never_over_the_persons_own() {
        let with = |nvidia, wayland, safe, own: &[&str]| {
            graphics_variables(
                &Graphics {
                    nvidia,
                    wayland,
                    safe,
                },
                |name| own.contains(&name),
            )
        };
        let dmabuf = ("WEBKIT_DISABLE_DMABUF_RENDERER", "1");
        let sync = ("__NV_DISABLE_EXPLICIT_SYNC", "1");
        assert_eq!(with(false, true, false, &[]), []);
        assert_eq!(with(true, false, false, &[]), [dmabuf]);
        assert_eq!(with(true, true, false, &[]), [sync, dmabuf]);
        assert_eq!(with(true, true, false, &[dmabuf.0]), [sync]);
        let cpu = ("WEBKIT_SKIA_ENABLE_CPU_RENDERING", "1");
        assert_eq!(with(false, false, true, &[]), [dmabuf, cpu]);
        assert_eq!(with(false, false, true, &[dmabuf.0]), [cpu]);
        assert_eq!(with(true, false, true, &[cpu.0]), [dmabuf]);
    }

    #[test]
    fn without_a_display_there_is_one_sentence_that_names_the_way_out() {
        assert_eq!(missing_display(|name| name == "DISPLAY"), None);
        assert_eq!(missing_display(|name| name == "WAYLAND_DISPLAY"), None);
        let sentence = missing_display(|_| false).unwrap_or_default();
        assert!(sentence.contains("fastar serve") && sentence.matches(". ").count() == 0);
    }

    #[test]
    fn a_display_that_does_not_answer_is_named_with_the_way_out() {
        let sentence = unreachable_display(|name| match name {
            "DISPLAY" => Some(":77".into()),
            _ => Some(OsString::new()),
        });
        assert!(sentence.contains("(DISPLAY is :77)"), "{sentence}");
        assert!(sentence.contains("fastar serve") && sentence.matches(". ").count() == 0);
    }
}
