//! Moving a model to another folder, also on another disk, so that at every moment one whole copy of it is there.
//!
//! On one disk the files get another name. Else they are copied under names that no list shows, read again and compared byte by byte with what they were
//! copied from; only when all of them are right they get their names, and only then the old ones are removed. After a kill the next run finds
//! what has arrived. Unfinished downloads stay where they are.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fastar_api::{ApiError, ErrorCode, JobPhase};

use super::{Result, Tell, at};
use crate::error::Error;
use crate::jobs::{Ended, Order, Steering};
use crate::library::{self, set};

/// Bytes that are copied and compared at a time.
const BLOCK: usize = 4 << 20;
/// Around a name: a copy that is not whole.
const COMING: (&str, &str) = (".", ".moving");

/// One file on its way.
struct Piece {
    from: PathBuf,
    to: PathBuf,
    bytes: u64,
    is_link: bool,
}

impl Piece {
    /// Where its copy grows.
    fn coming(&self) -> PathBuf {
        let name = self.to.file_name().unwrap_or_default().to_string_lossy();
        self.to
            .with_file_name(format!("{}{name}{}", COMING.0, COMING.1))
    }
}

/// The folder that a model goes to.
fn target(order: &Order) -> &Path {
    Path::new(&order.repository)
}

fn pieces(order: &Order) -> Result<Vec<Piece>> {
    let mut pieces = library::whole_parts(&order.folder, &order.file)
        .into_iter()
        .filter_map(|from| {
            let facts = fs::symlink_metadata(&from).ok()?;
            let to = target(order).join(from.strip_prefix(&order.folder).ok()?);
            let is_link = facts.is_symlink();
            let bytes = if is_link { 0 } else { facts.len() };
            (is_link || facts.is_file()).then_some(Piece {
                from,
                to,
                bytes,
                is_link,
            })
        })
        .collect::<Vec<_>>();
    // The container last: without it there is no model in the list.
    pieces.sort_by_key(|piece| (piece.bytes, piece.from.clone()));
    Ok(pieces)
}

pub(super) fn move_model(order: &Order, steering: &Steering, tell: Tell<'_>) -> Result<Ended> {
    transfer(order, steering, tell, rename)
}

/// `rename` is the short way.
fn transfer(
    order: &Order,
    steering: &Steering,
    tell: Tell<'_>,
    rename: fn(&Piece) -> Result<bool>,
) -> Result<Ended> {
    let pieces = pieces(order)?;
    let done = || Ended::Done(Some(format!("It is in {} now.", target(order).display())));
    if pieces.is_empty() {
        // The last run may have come to its end without saying so.
        return match set::path_of(target(order), &order.file).is_file() {
            true => Ok(done()),
            false => Err(Error::ModelNotFound),
        };
    }
    for piece in &pieces {
        let folder = piece.to.parent().unwrap_or(target(order));
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
    }
    let total = pieces.iter().map(|piece| piece.bytes).sum();
    let mut copied = Vec::new();
    for piece in pieces {
        let there = fs::symlink_metadata(&piece.to).is_ok();
        if there || !rename(&piece)? {
            copied.push(piece);
        }
    }
    if copied.is_empty() {
        tell(at(JobPhase::Copying, total, total));
        clear_up(order);
        return Ok(done());
    }
    check_room(order, &copied)?;
    let before = total - copied.iter().map(|piece| piece.bytes).sum::<u64>();
    for (phase, work) in [
        (JobPhase::Copying, copy as Work),
        (JobPhase::Verifying, compare as Work),
    ] {
        let mut so_far = before;
        for piece in &copied {
            let whole = work(piece, steering, &mut |bytes| {
                tell(at(phase.clone(), so_far + bytes, total));
            })?;
            if !whole {
                return Ok(Ended::Stopped);
            }
            so_far += piece.bytes;
        }
    }
    // Nobody stops it from here on: what follows takes a moment.
    for piece in &copied {
        if !piece.is_link && fs::symlink_metadata(&piece.to).is_err() {
            let coming = piece.coming();
            fs::rename(&coming, &piece.to).map_err(Error::file(&coming))?;
        }
        sync_folder(&piece.to);
    }
    for piece in &copied {
        fs::remove_file(&piece.from).map_err(Error::file(&piece.from))?;
    }
    clear_up(order);
    Ok(done())
}

/// What a piece of work tells of its bytes, and whether it came to its end.
type Work = fn(&Piece, &Steering, &mut dyn FnMut(u64)) -> Result<bool>;

/// Gives up a move: what has arrived of it is removed, the model stays where it is.
pub(super) fn discard(order: &Order) -> Result<()> {
    for piece in pieces(order)? {
        let coming = piece.coming();
        match fs::remove_file(&coming) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::file(&coming)(error));
            }
            _ => {}
        }
    }
    // Stays where something is in it.
    let _ = fs::remove_dir(set::folder_of(target(order), &order.file));
    Ok(())
}

/// Another name on the same disk. False where it has to be copied.
fn rename(piece: &Piece) -> Result<bool> {
    match fs::rename(&piece.from, &piece.to) {
        Ok(()) => {
            sync_folder(&piece.to);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::CrossesDevices => Ok(false),
        Err(error) => Err(Error::file(&piece.to)(error)),
    }
}

fn check_room(order: &Order, copied: &[Piece]) -> Result<()> {
    let arrived = |piece: &Piece| {
        let whole = fs::symlink_metadata(&piece.to).is_ok();
        let coming = fs::symlink_metadata(piece.coming()).map_or(0, |facts| facts.len());
        if whole { piece.bytes } else { coming }
    };
    let needed: u64 = copied
        .iter()
        .map(|piece| piece.bytes.saturating_sub(arrived(piece)))
        .sum();
    match library::free_bytes(target(order)) {
        Some(free) if free < needed => Err(Error::Told(ApiError {
            code: ErrorCode::NoSpace,
            message: format!(
                "{} needs {} more in {}, and {} are free there.",
                order.title,
                fastar_fst::size(needed),
                target(order).display(),
                fastar_fst::size(free)
            ),
            hint: Some(
                "Make room there and try again, or cancel: the model stays where it is.".into(),
            ),
            details: None,
        })),
        _ => Ok(()),
    }
}

/// Copies what has not arrived.
fn copy(piece: &Piece, steering: &Steering, tell: &mut dyn FnMut(u64)) -> Result<bool> {
    if fs::symlink_metadata(&piece.to).is_ok() {
        tell(piece.bytes);
        return Ok(true);
    }
    if piece.is_link {
        let leads = fs::read_link(&piece.from).map_err(Error::file(&piece.from))?;
        let folder = piece.from.parent().unwrap_or(Path::new("/"));
        link(&folder.join(leads), &piece.to).map_err(Error::file(&piece.to))?;
        return Ok(true);
    }
    let coming = piece.coming();
    let mut from = open(&piece.from, false).map_err(Error::file(&piece.from))?;
    let mut to = open(&coming, true).map_err(Error::file(&coming))?;
    let arrived = to.metadata().map_err(Error::file(&coming))?.len();
    // What was written last may not have reached the disk whole; comparing would find it, and late.
    let mut done = arrived.min(piece.bytes) / BLOCK as u64 * BLOCK as u64;
    to.set_len(done).map_err(Error::file(&coming))?;
    from.seek(SeekFrom::Start(done))
        .map_err(Error::file(&piece.from))?;
    to.seek(SeekFrom::Start(done))
        .map_err(Error::file(&coming))?;
    let mut block = vec![0; BLOCK];
    loop {
        tell(done);
        if steering.is_stopped() {
            return Ok(false);
        }
        let bytes = fill(&mut from, &mut block).map_err(Error::file(&piece.from))?;
        if bytes == 0 {
            break;
        }
        to.write_all(&block[..bytes])
            .map_err(Error::file(&coming))?;
        done += bytes as u64;
    }
    to.sync_all().map_err(Error::file(&coming))?;
    // What is compared is to come from the disk.
    if let Err(error) = fastar_probe::direct::forget(&coming) {
        tracing::debug!(%error, "the copy stays in memory");
    }
    Ok(true)
}

/// Reads both and compares them.
fn compare(piece: &Piece, steering: &Steering, tell: &mut dyn FnMut(u64)) -> Result<bool> {
    if piece.is_link {
        return Ok(true);
    }
    let there = fs::symlink_metadata(&piece.to).is_ok();
    let copy = if there {
        piece.to.clone()
    } else {
        piece.coming()
    };
    let mut from = open(&piece.from, false).map_err(Error::file(&piece.from))?;
    let mut to = open(&copy, false).map_err(Error::file(&copy))?;
    let (mut one, mut other) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut done = 0;
    loop {
        tell(done);
        if steering.is_stopped() {
            return Ok(false);
        }
        let bytes = fill(&mut from, &mut one).map_err(Error::file(&piece.from))?;
        let same = fill(&mut to, &mut other).map_err(Error::file(&copy))? == bytes
            && one[..bytes] == other[..bytes];
        if !same && there {
            return Err(Error::Occupied(format!(
                "{} is there already and is another file. Move it away or choose another folder.",
                copy.display()
            )));
        }
        if !same {
            // The next run copies it anew.
            fs::remove_file(&copy).map_err(Error::file(&copy))?;
            return Err(Error::Occupied(format!(
                "{} did not keep what was written to it; the model is where it was, whole. Try again, or choose another disk.",
                copy.display()
            )));
        }
        if bytes == 0 {
            return Ok(true);
        }
        done += bytes as u64;
    }
}

/// As many bytes as there are, up to a whole block.
fn fill(file: &mut File, block: &mut [u8]) -> std::io::Result<usize> {
    let mut bytes = 0;
    while bytes < block.len() {
        match file.read(&mut block[bytes..]) {
            Ok(0) => break,
            Ok(n) => bytes += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Opens a plain file and follows no link; makes it where it is written.
fn open(path: &Path, write: bool) -> std::io::Result<File> {
    let mut options = File::options();
    fastar_files::open(path, options.read(true).write(write).create(write))
}

#[cfg(unix)]
fn link(leads: &Path, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(leads, at)
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

fn sync_folder(of: &Path) {
    if let Some(folder) = of.parent().and_then(|folder| File::open(folder).ok()) {
        // After a power cut a file may have its old name: it is still a whole one.
        let _ = folder.sync_all();
    }
}

/// The folder of a set that is empty now. It stays where somebody else's files are in it.
fn clear_up(order: &Order) {
    let _ = fs::remove_dir(set::folder_of(&order.folder, &order.file));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use fastar_api::JobKind;

    use super::*;

    /// A model of two files in one folder, and another folder that counts as another disk.
    struct Scene {
        from: tempfile::TempDir,
        to: tempfile::TempDir,
        model: Vec<u8>,
    }

    const SIDECAR: &[u8] = b"sidecar";

    impl Scene {
        fn new() -> Self {
            let scene = Self {
                from: tempfile::tempdir().unwrap(),
                to: tempfile::tempdir().unwrap(),
                // Two whole blocks and some, all different.
                model: (0..2 * BLOCK as u64 + 12_345)
                    .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
                    .collect(),
            };
            fs::write(scene.from.path().join("a.fst"), &scene.model).unwrap();
            fs::write(scene.from.path().join("a.fst.hc"), SIDECAR).unwrap();
            fs::write(scene.from.path().join("notes.txt"), "mine").unwrap();
            scene
        }

        fn order(&self) -> Order {
            Order {
                kind: JobKind::Move,
                folder: self.from.path().to_owned(),
                file: "a.fst".into(),
                title: "A".into(),
                repository: self.to.path().to_str().unwrap().into(),
                revision: String::new(),
                drafter: true,
            }
        }

        fn work(&self, tell: Tell<'_>) -> Result<Ended> {
            transfer(&self.order(), &Steering::default(), tell, |_| Ok(false))
        }

        fn is_whole(&self, folder: &Path) -> bool {
            let has = |name: &str, bytes: &[u8]| {
                fs::read(folder.join(name)).is_ok_and(|read| read == bytes)
            };
            has("a.fst", &self.model) && has("a.fst.hc", SIDECAR)
        }

        fn names(folder: &Path) -> Vec<String> {
            let mut names: Vec<_> = fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }

        fn has_moved(&self) {
            assert!(self.is_whole(self.to.path()));
            assert_eq!(Self::names(self.to.path()), ["a.fst", "a.fst.hc"]);
            // Somebody else's file stays.
            assert_eq!(Self::names(self.from.path()), ["notes.txt"]);
        }
    }

    #[test]
    fn on_one_disk_the_files_get_another_name() {
        let scene = Scene::new();
        let ended = move_model(&scene.order(), &Steering::default(), &mut |_| {}).unwrap();
        assert!(matches!(ended, Ended::Done(Some(_))), "{ended:?}");
        scene.has_moved();
    }

    #[test]
    fn to_another_disk_they_are_copied_compared_and_only_then_removed() {
        let scene = Scene::new();
        let total = scene.model.len() as u64 + SIDECAR.len() as u64;
        let mut phases = Vec::new();
        scene
            .work(&mut |report| {
                assert_eq!(report.total_bytes, Some(total));
                assert!(report.done_bytes <= total);
                assert!(scene.is_whole(scene.from.path()), "{report:?}");
                if phases.last() != Some(&report.phase) {
                    phases.push(report.phase);
                }
            })
            .unwrap();
        assert_eq!(phases, [JobPhase::Copying, JobPhase::Verifying]);
        scene.has_moved();
    }

    #[test]
    fn whatever_moment_it_dies_in_one_whole_copy_is_there_and_the_next_run_ends_it() {
        // Every report is a moment; a death leaves the disk as it is then.
        for moment in 0..40 {
            let scene = Scene::new();
            let mut reports = 0;
            let died = catch_unwind(AssertUnwindSafe(|| {
                scene.work(&mut |_| {
                    reports += 1;
                    assert!(reports <= moment, "dies here");
                })
            }));
            assert!(
                scene.is_whole(scene.from.path()) || scene.is_whole(scene.to.path()),
                "moment {moment}"
            );
            if died.is_err() {
                scene.work(&mut |_| {}).unwrap();
            }
            scene.has_moved();
            if died.is_ok() {
                assert!(moment > 8, "only {moment} moments were tried");
                return;
            }
        }
        panic!("it never came to its end");
    }

    #[test]
    fn a_death_while_the_old_files_are_removed_loses_nothing() {
        for gone in [&["a.fst.hc"][..], &["a.fst"], &["a.fst", "a.fst.hc"]] {
            let scene = Scene::new();
            for name in ["a.fst", "a.fst.hc"] {
                fs::copy(scene.from.path().join(name), scene.to.path().join(name)).unwrap();
            }
            for name in gone {
                fs::remove_file(scene.from.path().join(name)).unwrap();
            }
            scene.work(&mut |_| {}).unwrap();
            scene.has_moved();
        }
    }

    #[test]
    fn it_goes_on_where_it_stopped_and_what_the_disk_did_not_keep_is_found() {
        let scene = Scene::new();
        let steering = Steering::default();
        let ended = transfer(
            &scene.order(),
            &steering,
            &mut |report| {
                if report.done_bytes > BLOCK as u64 {
                    steering.stop();
                }
            },
            |_| Ok(false),
        );
        assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
        let coming = scene.to.path().join(".a.fst.moving");
        assert!(fs::metadata(&coming).unwrap().len() >= BLOCK as u64);
        // A byte of what has arrived turns over.
        let mut file = open(&coming, true).unwrap();
        file.seek(SeekFrom::Start(17)).unwrap();
        file.write_all(&[!scene.model[17]]).unwrap();
        drop(file);
        let mut first = None;
        let error = scene
            .work(&mut |report| {
                if report.done_bytes > SIDECAR.len() as u64 {
                    first.get_or_insert(report.done_bytes);
                }
            })
            .unwrap_err();
        // It went on behind the first block.
        assert!(first.unwrap() >= BLOCK as u64, "{first:?}");
        assert!(error.to_string().contains("did not keep"), "{error}");
        assert!(scene.is_whole(scene.from.path()));
        scene.work(&mut |_| {}).unwrap();
        scene.has_moved();
    }

    #[test]
    fn another_file_of_that_name_is_not_touched() {
        let scene = Scene::new();
        fs::write(scene.to.path().join("a.fst"), "another").unwrap();
        for rename in [rename as fn(&Piece) -> Result<bool>, |_| Ok(false)] {
            let error =
                transfer(&scene.order(), &Steering::default(), &mut |_| {}, rename).unwrap_err();
            assert!(error.to_string().contains("is there already"), "{error}");
            assert_eq!(fs::read(scene.to.path().join("a.fst")).unwrap(), b"another");
            assert_eq!(
                fs::read(scene.from.path().join("a.fst")).unwrap(),
                scene.model
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_linked_model_stays_linked() {
        let scene = Scene::new();
        let model = scene.from.path().join("a.fst");
        let real = scene.from.path().join("elsewhere");
        fs::rename(&model, &real).unwrap();
        std::os::unix::fs::symlink("elsewhere", &model).unwrap();
        scene.work(&mut |_| {}).unwrap();
        assert!(scene.is_whole(scene.to.path()));
        assert_eq!(fs::read_link(scene.to.path().join("a.fst")).unwrap(), real);
        assert!(real.is_file());
    }

    #[cfg(unix)]
    #[test]
    fn what_lies_where_a_copy_grows_is_neither_written_through_nor_waited_for() {
        for trap in ["link", "pipe"] {
            let scene = Scene::new();
            let (victim, coming) = (
                scene.from.path().join("victim"),
                scene.to.path().join(".a.fst.moving"),
            );
            fs::write(&victim, "all my chats").unwrap();
            if trap == "link" {
                std::os::unix::fs::symlink(&victim, &coming).unwrap();
            } else {
                let made = std::process::Command::new("mkfifo").arg(&coming).status();
                assert!(made.unwrap().success());
            }
            let error = transfer(&scene.order(), &Steering::default(), &mut |_| {}, |_| {
                Ok(false)
            })
            .unwrap_err();
            assert!(error.to_string().contains(".a.fst.moving"), "{error}");
            assert_eq!(fs::read(&victim).unwrap(), b"all my chats");
            assert!(scene.is_whole(scene.from.path()));
        }
    }

    #[test]
    fn giving_up_removes_what_has_arrived_and_nothing_else() {
        let scene = Scene::new();
        fs::write(scene.to.path().join("other.fst"), "other").unwrap();
        fs::write(scene.to.path().join(".a.fst.moving"), "some").unwrap();
        discard(&scene.order()).unwrap();
        assert_eq!(Scene::names(scene.to.path()), ["other.fst"]);
        assert!(scene.is_whole(scene.from.path()));
    }
}
