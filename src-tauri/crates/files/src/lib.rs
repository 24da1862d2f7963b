//! Opening and making the files that FaStar keeps beside a person's: journals, locks, partial files, traces, logs.
//!
//! The folder may come from somebody else, so whatever has the name of such a file may be a link to any file of the person, or a pipe that
//! would be waited for. Nothing here follows the one or waits for the other. Not here: files that a person names to be read, which may be
//! links, and folders on the way to a file, which are followed.

pub mod holders;
pub mod locks;
mod unwritten;

pub use unwritten::unwritten;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens what must be a regular file and no link, with these options but for the system's own flags. It must not truncate: then a file is
/// emptied before it was looked at.
///
/// # Errors
/// Those of the system; and when it is a link or no regular file, with words that follow "the file could not be opened: ".
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    let opened = {
        use rustix::fs::OFlags;
        // Not to wait means nothing for regular files.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags);
        options.open(path)
    };
    #[cfg(not(unix))]
    let opened = match is_link(path) {
        true => return Err(link()),
        false => options.open(path),
    };
    let file = match opened {
        // Which error that is depends on the system.
        Err(_) if is_link(path) => return Err(link()),
        opened => opened?,
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file; move it away")),
    }
}

/// Makes a new file with these options, in the place of a file or link of that name: one of FaStar's own that a kill has left, or that
/// somebody has put there. What a link leads to stays as it is.
///
/// # Errors
/// Those of the system, as where a folder is in its place.
pub fn make(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Not even what has come there since is written through.
    options.write(true).create_new(true).open(path)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink())
}

fn link() -> io::Error {
    io::Error::other("it is a link; move it away")
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn scene() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (victim, ours) = (folder.path().join("chats.db"), folder.path().join("ours"));
        fs::write(&victim, "all my chats").unwrap();
        (folder, victim, ours)
    }

    #[test]
    fn a_link_is_never_opened_and_nothing_is_made_where_it_leads() {
        let (folder, victim, ours) = scene();
        let nowhere = folder.path().join("nowhere");
        for to in [&victim, &nowhere, &folder.path().to_owned()] {
            symlink(to, &ours).unwrap();
            for mut options in [
                File::options().read(true).clone(),
                File::options().read(true).write(true).create(true).clone(),
                File::options().append(true).create(true).clone(),
            ] {
                let error = open(&ours, &mut options).unwrap_err().to_string();
                assert_eq!(error, "it is a link; move it away");
            }
            fs::remove_file(&ours).unwrap();
        }
        assert!(!nowhere.exists());
        assert_eq!(fs::read(victim).unwrap(), b"all my chats");
        let missing = open(&ours, File::options().read(true)).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_made_takes_the_place_of_a_link_a_pipe_and_an_older_file() {
        let (folder, victim, ours) = scene();
        let nowhere = folder.path().join("nowhere");
        let traps: [&dyn Fn(); 5] = [
            &|| {},
            &|| fs::write(&ours, "of a run that was killed").unwrap(),
            &|| symlink(&victim, &ours).unwrap(),
            &|| symlink(&nowhere, &ours).unwrap(),
            &|| {
                let made = std::process::Command::new("mkfifo").arg(&ours).status();
                assert!(made.unwrap().success());
            },
        ];
        for trap in traps {
            trap();
            make(&ours, &mut File::options())
                .unwrap()
                .write_all(b"new")
                .unwrap();
            assert!(fs::symlink_metadata(&ours).unwrap().is_file());
            assert_eq!(fs::read(&ours).unwrap(), b"new");
            fs::remove_file(&ours).unwrap();
        }
        assert!(!nowhere.exists());
        assert_eq!(fs::read(victim).unwrap(), b"all my chats");
        fs::create_dir(&ours).unwrap();
        assert!(make(&ours, &mut File::options()).is_err());
    }

    #[test]
    fn a_pipe_or_a_folder_is_never_waited_for_nor_taken_for_a_file() {
        let (folder, _, ours) = scene();
        let made = std::process::Command::new("mkfifo").arg(&ours).status();
        assert!(made.unwrap().success());
        for path in [ours.as_path(), folder.path()] {
            let error = open(path, File::options().read(true)).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file; move it away");
        }
        assert!(open(&ours, File::options().append(true)).is_err());
    }
}
