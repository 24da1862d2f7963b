//! What happens before the window: the command line, the graphics variables, and whether there is a display. Pure functions of their
//! inputs; `main` applies them.

use std::ffi::OsString;
use std::path::PathBuf;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Open the window.
    Window {
        /// A model file for this run.
        model: Option<PathBuf>,
        /// Use the slow but safe way to draw.
        safe_graphics: bool,
    },
    /// Print this and end well.
    Print(String),
    /// Print this to the error output and end with 2.
    Wrong(String),
}

const HELP: &str = "FaStar: chat with DeepSeek V4 Flash on your own computer

Usage: fastar-desktop [--model FILE] [--safe-graphics]

  --model FILE      use this .fst model for this run
  --safe-graphics   draw without the graphics card, if the window stays blank
  --version         print the version
  --help            print this

FASTAR_DATA_DIR chooses the folder for chats and settings.";

/// Reads the arguments after the program's name.
pub(crate) fn wish(arguments: impl IntoIterator<Item = OsString>) -> Wish {
    let mut model = None;
    let mut safe_graphics = false;
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--model") => match arguments.next() {
                Some(file) => model = Some(PathBuf::from(file)),
                None => return Wish::Wrong("--model needs a file.".into()),
            },
            Some("--safe-graphics") => safe_graphics = true,
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
        safe_graphics,
    }
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
        let plain = Wish::Window {
            model: None,
            safe_graphics: false,
        };
        assert_eq!(wish_of(&[]), plain);
        let model = Wish::Window {
            model: Some("a b.fst".into()),
            safe_graphics: true,
        };
        assert_eq!(wish_of(&["--model", "a b.fst", "--safe-graphics"]), model);
        assert_eq!(wish_of(&["--safe-graphics", "--model=a b.fst"]), model);
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
        assert_eq!(with(false, false, true, &[]), [dmabuf]);
        assert_eq!(with(false, false, true, &[dmabuf.0]), []);
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
