//! `cargo xtask package`: the `.deb` and the `.rpm`, with the window, the command, the menu entry and the type of model files; and
//! installing both into a folder, for the tests. Nothing here touches the packages of the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::place::{Place, on_path};
use crate::steps::{Problem, Steps, execute};
use crate::{system, ui};

/// What people get.
pub const RELEASE: &str = "release";
/// The same without what takes long to build.
pub const QUICK: &str = "quick";

/// What must be there once a package is installed.
const INSTALLED: &[&str] = &[
    "usr/bin/fastar",
    "usr/bin/fastar-desktop",
    "usr/share/applications/fastar.desktop",
    "usr/share/mime/packages/fastar.xml",
    "usr/share/icons/hicolor/scalable/apps/fastar-desktop.svg",
    "usr/share/icons/hicolor/16x16/apps/fastar-desktop.png",
    "usr/share/icons/hicolor/24x24/apps/fastar-desktop.png",
    "usr/share/icons/hicolor/32x32/apps/fastar-desktop.png",
    "usr/share/icons/hicolor/48x48/apps/fastar-desktop.png",
    "usr/share/icons/hicolor/64x64/apps/fastar-desktop.png",
    "usr/share/icons/hicolor/128x128/apps/fastar-desktop.png",
    "usr/share/icons/hicolor/256x256/apps/fastar-desktop.png",
    "usr/share/icons/hicolor/512x512/apps/fastar-desktop.png",
];

/// Installs what is missing, builds, and says where the packages are.
pub fn package(place: &Place) -> Result<(), Problem> {
    let mut steps = Steps::new("cargo xtask package");
    steps.run("System packages", || system::install(system::WINDOW_BUILD))?;
    steps.run("Node", system::node)?;
    steps.run("UI packages", || ui::install(place))?;
    steps.run("UI build", || ui::build(place))?;
    steps.run("App build", || build(place, RELEASE))?;
    let packages = steps.run("Packages", || bundle(place, RELEASE))?;
    steps.summary();
    println!();
    for package in packages {
        println!("{}", package.display());
    }
    Ok(())
}

/// Builds the window and the command.
pub fn build(place: &Place, profile: &str) -> Result<(), Problem> {
    execute(&mut place.cargo([
        "build",
        "--locked",
        "--profile",
        profile,
        "-p",
        "fastar-desktop",
        "-p",
        "fastar-cli",
    ]))
}

/// Packs what was built: the `.deb` and the `.rpm`.
pub fn bundle(place: &Place, profile: &str) -> Result<[PathBuf; 2], Problem> {
    // The bundler writes into the program and takes it from a place that it chooses itself.
    let stage = place.target().join("package").join(profile);
    let built = stage.join("release");
    let bundles = built.join("bundle");
    remove(&bundles)?;
    make(&built)?;
    for program in ["fastar-desktop", "fastar"] {
        let from = place.built(profile, program);
        fs::copy(&from, built.join(program))
            .map_err(|e| Problem::new(format!("{} could not be copied: {e}.", from.display())))?;
    }
    let command = built.join("fastar");
    let command = command.to_str().ok_or_else(|| {
        Problem::new("The path of the build folder is no text; the bundler needs one.")
    })?;
    // The rest is in tauri.conf.json: this path alone depends on where things are built. The bundler names packages after the product, and the
    // names of packages are lower case.
    let command = format!("\"/usr/bin/fastar\":\"{}\"", escaped(command));
    let config = format!(
        "{{\"productName\":\"fastar\",\"bundle\":{{\"linux\":{{\"deb\":{{\"files\":{{{command}}}}},\"rpm\":{{\"files\":{{{command}}}}}}}}}}}"
    );
    execute(
        Command::new("node")
            .arg(place.ui().join("node_modules/@tauri-apps/cli/tauri.js"))
            .args(["bundle", "--ci", "--no-sign", "--bundles", "deb,rpm"])
            .args(["--config", &config])
            // It looks for the program's folder below.
            .current_dir(place.root())
            .env("CARGO_TARGET_DIR", &stage)
            .stdin(Stdio::null()),
    )?;
    Ok([
        only_one(&bundles.join("deb"), "deb")?,
        only_one(&bundles.join("rpm"), "rpm")?,
    ])
}

/// Packages that are installed in folders of their own.
pub struct Installed {
    deb: Folder,
    rpm: Folder,
}

impl Installed {
    /// Installs both packages and looks at what they brought.
    pub fn install(place: &Place, [deb, rpm]: &[PathBuf; 2]) -> Result<Self, Problem> {
        let folder = place.target().join("package/installed");
        remove(&folder)?;
        let installed = Self {
            deb: Folder::new(Manager::Dpkg, &folder.join("deb"))?,
            rpm: Folder::new(Manager::Rpm, &folder.join("rpm"))?,
        };
        installed.deb.install(deb)?;
        installed.rpm.install(rpm)?;
        Ok(installed)
    }

    /// The window, as the package brought it.
    pub fn window(&self) -> PathBuf {
        self.deb.root.join("usr/bin/fastar-desktop")
    }

    /// Removes both packages; nothing of them may stay.
    pub fn remove(self) -> Result<(), Problem> {
        self.deb.remove()?;
        self.rpm.remove()
    }
}

#[derive(Clone, Copy)]
enum Manager {
    Dpkg,
    Rpm,
}

/// A system of its own in a folder, with one package.
struct Folder {
    manager: Manager,
    root: PathBuf,
}

impl Folder {
    fn new(manager: Manager, root: &Path) -> Result<Self, Problem> {
        let folder = Self {
            manager,
            root: root.to_owned(),
        };
        match manager {
            Manager::Dpkg => {
                make(&root.join("var/lib/dpkg/info"))?;
                make(&root.join("var/lib/dpkg/updates"))?;
                let status = root.join("var/lib/dpkg/status");
                fs::write(&status, "").map_err(|e| {
                    Problem::new(format!("{} could not be written: {e}.", status.display()))
                })?;
            }
            Manager::Rpm => make(root)?,
        }
        Ok(folder)
    }

    /// The package manager on this folder. Who is not root is made to look so, for the owners of the files.
    fn command(&self) -> Command {
        let (program, folder) = match self.manager {
            Manager::Dpkg => ("dpkg", "--root"),
            Manager::Rpm => ("rpm", "--root"),
        };
        let mut command = if system::is_root() || on_path("unshare").is_none() {
            Command::new(program)
        } else {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", program]);
            command
        };
        command.arg(format!("{folder}={}", self.root.display()));
        if matches!(self.manager, Manager::Dpkg) {
            // Or it would write into that of the system.
            command.arg(format!(
                "--log={}",
                self.root.join("var/lib/dpkg/log").display()
            ));
        }
        command.stdin(Stdio::null());
        command
    }

    fn install(&self, package: &Path) -> Result<(), Problem> {
        let mut command = self.command();
        match self.manager {
            // What the package needs is not in the folder.
            Manager::Dpkg => command.args(["--force-depends", "--install"]),
            Manager::Rpm => command.args(["--nodeps", "--nosignature", "--install"]),
        };
        execute(command.arg(package).stdout(Stdio::null()))?;
        for file in INSTALLED {
            let file = self.root.join(file);
            if !file.is_file() {
                return Err(Problem::new(format!(
                    "The package did not bring {}.",
                    file.display()
                )));
            }
        }
        for program in ["fastar", "fastar-desktop"] {
            execute(
                Command::new(self.root.join("usr/bin").join(program))
                    .arg("--version")
                    .stdin(Stdio::null()),
            )?;
        }
        let entry = self.root.join("usr/share/applications/fastar.desktop");
        let text = fs::read_to_string(&entry)
            .map_err(|e| Problem::new(format!("{} could not be read: {e}.", entry.display())))?;
        for line in [
            "Exec=fastar-desktop %f",
            "Icon=fastar-desktop",
            "MimeType=application/x-fastar-model;",
        ] {
            if !text.lines().any(|there| there == line) {
                return Err(Problem::new(format!(
                    "The menu entry has no line {line:?}:\n{text}"
                )));
            }
        }
        self.check_type()
    }

    /// The desktop must know what a model file is.
    fn check_type(&self) -> Result<(), Problem> {
        if on_path("update-mime-database").is_none() {
            return Ok(());
        }
        let database = self.root.join("mime");
        let packages = database.join("packages");
        make(&packages)?;
        let from = self.root.join("usr/share/mime/packages/fastar.xml");
        fs::copy(&from, packages.join("fastar.xml"))
            .map_err(|e| Problem::new(format!("{} could not be copied: {e}.", from.display())))?;
        execute(
            Command::new("update-mime-database")
                .arg(&database)
                // It only tells that this is not the database of the desktop.
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .stdin(Stdio::null()),
        )?;
        let known = fs::read_to_string(database.join("globs2")).unwrap_or_default();
        if known
            .lines()
            .any(|line| line.ends_with(":application/x-fastar-model:*.fst"))
        {
            Ok(())
        } else {
            Err(Problem::new(format!(
                "The type of model files is not known from {}.",
                from.display()
            )))
        }
    }

    fn remove(&self) -> Result<(), Problem> {
        let mut command = self.command();
        match self.manager {
            Manager::Dpkg => command.args(["--purge", "fastar"]),
            Manager::Rpm => command.args(["--erase", "fastar"]),
        };
        execute(command.stdout(Stdio::null()))?;
        match first_file(&self.root.join("usr"))? {
            None => Ok(()),
            Some(left) => Err(Problem::new(format!(
                "{} is left after the package was removed.",
                left.display()
            ))),
        }
    }
}

/// Some file below a folder, which need not be there itself.
fn first_file(folder: &Path) -> Result<Option<PathBuf>, Problem> {
    if !folder.exists() {
        return Ok(None);
    }
    let unreadable = |e| Problem::new(format!("{} could not be read: {e}.", folder.display()));
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if !path.is_dir() {
            return Ok(Some(path));
        }
        if let Some(found) = first_file(&path)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn only_one(folder: &Path, ending: &str) -> Result<PathBuf, Problem> {
    let found: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(|e| Problem::new(format!("{} could not be read: {e}.", folder.display())))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file() && path.extension().is_some_and(|found| found == ending))
        .collect();
    match <[PathBuf; 1]>::try_from(found) {
        Ok([package]) => Ok(package),
        Err(found) => Err(Problem::new(format!(
            "The bundler made {} packages in {}.",
            found.len(),
            folder.display()
        ))),
    }
}

fn make(folder: &Path) -> Result<(), Problem> {
    fs::create_dir_all(folder)
        .map_err(|e| Problem::new(format!("{} could not be made: {e}.", folder.display())))
}

fn remove(folder: &Path) -> Result<(), Problem> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Problem::new(format!(
            "{} could not be removed: {e}.",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// For a string of JSON.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_that_was_left_is_found_however_deep() {
        let folder = std::env::temp_dir().join(format!("fastar-package-{}", std::process::id()));
        assert_eq!(first_file(&folder).unwrap(), None);
        fs::create_dir_all(folder.join("a/b/c")).unwrap();
        fs::create_dir_all(folder.join("d")).unwrap();
        assert_eq!(first_file(&folder).unwrap(), None);
        fs::write(folder.join("a/b/left"), "").unwrap();
        assert_eq!(first_file(&folder).unwrap(), Some(folder.join("a/b/left")));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_icon_of_a_package_has_the_size_of_its_name() {
        let icons = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../icons");
        let mut sizes: Vec<u32> = Vec::new();
        for entry in fs::read_dir(&icons).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let Some((wide, high)) = name.split_once('x') else {
                continue;
            };
            assert_eq!(wide, high);
            let bytes = fs::read(&path).unwrap();
            // Width and height are in the first chunk of a PNG.
            let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(&bytes[12..16], b"IHDR", "{name}");
            assert_eq!((number(16), number(20)), (number(16), number(16)));
            assert_eq!(number(16), wide.parse().unwrap());
            sizes.push(number(16));
        }
        sizes.sort_unstable();
        assert_eq!(sizes, [16, 24, 32, 48, 64, 128, 256, 512]);
    }
}
