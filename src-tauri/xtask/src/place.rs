//! Where things are: the repository, the build folder, the tools in it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::steps::Problem;

/// Folders of this checkout.
pub struct Place {
    root: PathBuf,
    target: PathBuf,
}

impl Place {
    /// From where this program was compiled, and where cargo put it: that honours every way to move the build folder.
    pub fn find() -> Result<Self, Problem> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .map(Path::to_owned);
        let target = std::env::current_exe()
            .ok()
            .and_then(|exe| exe.ancestors().nth(2).map(Path::to_owned));
        match (root, target) {
            (Some(root), Some(target)) if root.join("Cargo.toml").is_file() => {
                Ok(Self { root, target })
            }
            _ => Err(Problem::new(
                "The project folder was not found. Run this as `cargo xtask` inside it.",
            )),
        }
    }

    /// The folder with everything.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The user interface's folder.
    pub fn ui(&self) -> PathBuf {
        self.root.join("ui")
    }

    /// A built program.
    pub fn built(&self, profile: &str, program: &str) -> PathBuf {
        self.target
            .join(profile)
            .join(format!("{program}{}", std::env::consts::EXE_SUFFIX))
    }

    /// The build folder.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Where tools for the tests are installed.
    pub fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// cargo, in the repository, without input.
    pub fn cargo<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command
            .args(arguments)
            .current_dir(&self.root)
            .stdin(Stdio::null());
        command
    }

    /// npm, in the user interface's folder, without input.
    pub fn npm<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
        command
            .args(arguments)
            .current_dir(self.ui())
            .stdin(Stdio::null());
        command
    }
}

/// A program on the search path.
pub fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(format!("{program}{}", std::env::consts::EXE_SUFFIX)))
        .find(|path| path.is_file())
}
