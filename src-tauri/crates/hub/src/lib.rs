//! Downloads that end whole: from Hugging Face or a mirror, resumed after anything, checked against the hub's own hashes.
//!
//! [`Hub::snapshot`] asks once what a repository holds at one commit. [`Hub::fetch_set`] brings files of it into a folder: several files and
//! ranges in flight, retried for ever, each under its final name only when its length and its hash are right. Calls block; network and disk run
//! on the hub's own threads, and events come on the caller's. What a process that dies leaves behind is described in [`blocks`].
//!
//! `hf-hub` gives the place of the token file; its own transfer neither resumes nor hashes. This crate knows nothing of models, keeps no list
//! of downloads and asks nobody: what to fetch, when, and with whose consent is the caller's.

pub mod blocks;
mod certificates;
mod contents;
mod control;
mod error;
mod progress;
mod proxy;
mod retry;
mod set;
mod settings;
mod snapshot;
mod space;
#[cfg(test)]
mod tests;
mod transfer;
mod verify;
mod web;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, mpsc};

use tokio::runtime::Runtime;

pub use blocks::{BLOCK, Presence};
pub use control::{Control, Limiter};
pub use error::{Error, Result};
pub use progress::{Phase, Progress};
pub use proxy::{Proxies, is_open};
pub use set::{Event, Options, Slot, Summary};
pub use settings::{HUGGING_FACE, Settings, Token};
pub use snapshot::{RemoteFile, Snapshot, check_repo, check_revision};
pub use space::Space;
pub use verify::verify;

use control::Wish;
use retry::Backoff;
use snapshot::{Entry, Info, check, shortened};
use web::{Fault, Web};

/// Most bytes that [`Hub::read`] returns at once.
pub const LONGEST_READ: u64 = 256 << 20;
/// Most bytes of one page of a listing.
const LONGEST_PAGE: usize = 32 << 20;
const MOST_FILES: usize = 100_000;

/// A server of repositories. Clones share connections.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

/// Threads that the network is used on, and that files are written and names looked up on.
const WORKERS: usize = 2;
const BLOCKING: usize = 4;

struct Inner {
    settings: Settings,
    web: Arc<Web>,
    /// `Some` until it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Waiting for its threads is not allowed on another runtime's threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hub").field(&self.0.settings).finish()
    }
}

impl Hub {
    /// Checks the settings; nothing is sent.
    ///
    /// # Errors
    /// [`Error::Setting`] names the one that cannot be used.
    pub fn new(settings: Settings) -> Result<Self> {
        let web = Arc::new(Web::new(&settings)?);
        // The runtime would wait for ever for threads that do not come.
        fastar_kernels::threads::room(WORKERS + BLOCKING)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("hub")
            .enable_all()
            .build()
            .map_err(|error| Error::Setting {
                what: "The network",
                problem: error.to_string(),
            })?;
        Ok(Self(Arc::new(Inner {
            settings,
            web,
            runtime: Some(runtime),
        })))
    }

    /// The host that is asked, for people.
    #[must_use]
    pub fn host(&self) -> String {
        self.0.web.host()
    }

    /// The files of `repo` at the commit that `revision` (a branch, tag or commit) means now. Gives up after [`Settings::tries`].
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Denied`], [`Error::Untrusted`], [`Error::Unreachable`], [`Error::HostilePath`], [`Error::Cancelled`];
    /// [`Error::Refused`] if the answer makes no sense, such as one path with two sizes.
    pub fn snapshot(&self, repo: &str, revision: &str, control: &Control) -> Result<Snapshot> {
        check_repo(repo)?;
        check_revision(revision)?;
        let (hub, repo, revision) = (self.0.clone(), repo.to_owned(), revision.to_owned());
        let steered = control.clone();
        self.run(control, async move {
            list(&hub, &repo, &revision, &steered).await
        })
    }

    /// The bytes `range` of a file, at most [`LONGEST_READ`]; not checked against a hash. Gives up after [`Settings::tries`]. The
    /// control can cancel it and limits its speed; a pause does not hold it up.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot); [`Error::Refused`] if the file has no such bytes.
    pub fn read(&self, file: &RemoteFile, range: Range<u64>, control: &Control) -> Result<Vec<u8>> {
        check(file)?;
        if range.start > range.end
            || range.end > file.bytes
            || range.end - range.start > LONGEST_READ
        {
            return Err(Error::Refused {
                host: self.host(),
                what: format!("file {:?} of {}", file.path, file.repo),
                problem: format!(
                    "bytes {} to {} of {} cannot be read at once",
                    range.start, range.end, file.bytes
                ),
            });
        }
        let read = transfer::read(
            self.0.web.clone(),
            self.0.settings.clone(),
            control.clone(),
            file.clone(),
            range.start,
            range.end,
        );
        self.run(control, read)
    }

    /// What the set needs in `folder` and what is free there, for showing before anything is asked of the network.
    ///
    /// # Errors
    /// If the folder's file system cannot be asked.
    pub fn space(&self, files: &[RemoteFile], folder: &Path) -> Result<Space> {
        files.iter().try_for_each(check)?;
        space::space(files, folder)
    }

    /// Brings `files` into `folder`, each at its own path, in this order. Blocks until all are there, one fails for good, or the control
    /// cancels. While it waits for the network it retries for ever. Files that are there and were checked are not read again.
    ///
    /// # Errors
    /// Everything in [`Error`] but `Unreachable`; whatever arrived is kept.
    pub fn fetch_set(
        &self,
        files: &[RemoteFile],
        folder: &Path,
        options: &Options,
        control: &Control,
        on_event: impl FnMut(Event),
    ) -> Result<Summary> {
        let places = files
            .iter()
            .map(|file| (file.clone(), folder.join(&file.path)))
            .collect();
        self.fetch_places(places, folder, options, control, on_event)
    }

    /// Brings one file to `dest`.
    ///
    /// # Errors
    /// As [`fetch_set`](Self::fetch_set).
    pub fn fetch(
        &self,
        file: &RemoteFile,
        dest: &Path,
        control: &Control,
        on_event: impl FnMut(Event),
    ) -> Result<Summary> {
        self.fetch_place(file, dest, &Options::default(), control, on_event)
    }

    /// Reads a finished file again and fetches the blocks that were damaged since, and nothing else.
    ///
    /// # Errors
    /// As [`fetch_set`](Self::fetch_set).
    pub fn repair(
        &self,
        file: &RemoteFile,
        dest: &Path,
        control: &Control,
        on_event: impl FnMut(Event),
    ) -> Result<Summary> {
        let options = Options {
            recheck: true,
            ..Options::default()
        };
        self.fetch_place(file, dest, &options, control, on_event)
    }

    fn fetch_place(
        &self,
        file: &RemoteFile,
        dest: &Path,
        options: &Options,
        control: &Control,
        on_event: impl FnMut(Event),
    ) -> Result<Summary> {
        let place = (file.clone(), dest.to_owned());
        self.fetch_places(vec![place], folder_of(dest), options, control, on_event)
    }

    fn fetch_places(
        &self,
        places: Vec<set::Place>,
        folder: &Path,
        options: &Options,
        control: &Control,
        on_event: impl FnMut(Event),
    ) -> Result<Summary> {
        places.iter().try_for_each(|(file, _)| check(file))?;
        let inner = &self.0;
        let Some(runtime) = &inner.runtime else {
            return Err(Error::Cancelled);
        };
        set::fetch(
            runtime,
            &inner.web,
            &inner.settings,
            places,
            folder,
            options,
            control,
            on_event,
        )
    }

    /// Runs on the hub's threads until it is done or cancelled, and waits, which works on any thread.
    fn run<T: Send + 'static>(
        &self,
        control: &Control,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = mpsc::channel();
        let mut wish = control.watch();
        if let Some(runtime) = &self.0.runtime {
            runtime.spawn(async move {
                let done = tokio::select! {
                    biased;
                    _ = wish.wait_for(|wish| *wish == Wish::Cancel) => Err(Error::Cancelled),
                    done = work => done,
                };
                // Nobody waits any more: nothing to tell.
                let _ = sender.send(done);
            });
        }
        receiver.recv().unwrap_or(Err(Error::Cancelled))
    }
}

/// How much of `file` lies at `dest` or beside it, from the disk alone.
#[must_use]
pub fn presence(file: &RemoteFile, dest: &Path) -> Presence {
    blocks::presence(file, dest)
}

/// Removes what an unfinished download left at `dest`; a finished file keeps its data and its block hashes.
///
/// # Errors
/// If a file cannot be removed.
pub fn discard(dest: &Path) -> Result<()> {
    let partial = blocks::partial_path(dest);
    remove(&partial)?;
    if dest.exists() {
        Ok(())
    } else {
        remove(&blocks::blocks_path(dest))
    }
}

/// Removes a finished file and its block hashes, and anything unfinished.
///
/// # Errors
/// If a file cannot be removed.
pub fn remove_file(dest: &Path) -> Result<()> {
    remove(dest)?;
    discard(dest)
}

/// Where a file lies; a name alone lies here.
fn folder_of(dest: &Path) -> &Path {
    dest.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

async fn list(hub: &Inner, repo: &str, revision: &str, control: &Control) -> Result<Snapshot> {
    let repo_parts = || repo.split('/');
    let info = hub.web.address(
        &["api", "models"]
            .into_iter()
            .chain(repo_parts())
            .chain(["revision", revision])
            .collect::<Vec<_>>(),
    );
    let what = format!("repository {repo} at revision {revision:?}");
    let (info, _) = page::<Info>(hub, &info, &what, control).await?;
    let commit = info.sha;
    if !(1..=64).contains(&commit.len()) || !commit.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(Error::Refused {
            host: hub.web.host(),
            what,
            problem: "it names no commit".into(),
        });
    }
    let tree = hub.web.address(
        &["api", "models"]
            .into_iter()
            .chain(repo_parts())
            .chain(["tree", &commit])
            .collect::<Vec<_>>(),
    );
    let mut files: Vec<RemoteFile> = Vec::new();
    let mut places = HashMap::new();
    let mut query = Some("recursive=true".to_owned());
    let mut pages = 0;
    while let Some(this) = query.take() {
        let mut url = tree.clone();
        url.set_query(Some(&this));
        let (entries, next) = page::<Vec<Entry>>(hub, &url, &what, control).await?;
        for entry in entries {
            let Some(file) = entry.file(repo, &commit)? else {
                continue;
            };
            match places.get(&file.path) {
                None => {
                    places.insert(file.path.clone(), files.len());
                    files.push(file);
                }
                // A page that came twice.
                Some(place) if files.get(*place) == Some(&file) => {}
                Some(_) => {
                    return Err(Error::Refused {
                        host: hub.web.host(),
                        what,
                        problem: format!(
                            "it lists the file {:?} twice, with different sizes or hashes",
                            shortened(&file.path)
                        ),
                    });
                }
            }
        }
        pages += 1;
        if files.len() > MOST_FILES || pages > 1000 {
            return Err(Error::Refused {
                host: hub.web.host(),
                what,
                problem: "it lists too many files".into(),
            });
        }
        query = next.filter(|next| *next != this);
    }
    Ok(Snapshot {
        repo: repo.to_owned(),
        revision: commit,
        files,
    })
}

/// One answer as JSON, and the query of the next page. A mirror may copy the hub's own address into the link, so only the query is used.
async fn page<T: serde::de::DeserializeOwned>(
    hub: &Inner,
    url: &url::Url,
    what: &str,
    control: &Control,
) -> Result<(T, Option<String>)> {
    let settings = &hub.settings;
    let mut backoff = Backoff::new(settings.first_wait, settings.longest_wait);
    loop {
        let (why, wait) = match page_once(hub, url, what).await {
            Ok(page) => return Ok(page),
            Err(Fault::Final(error)) => return Err(error),
            Err(Fault::Again { why, wait }) => (why, wait),
            Err(Fault::Expired { why }) => (why, None),
        };
        let wait = backoff.next(wait);
        if backoff.failures() >= settings.tries.max(1) {
            return Err(Error::Unreachable {
                action: format!("ask for {what}"),
                why,
            });
        }
        tracing::debug!(%why, ?wait, "asking again");
        control.wait(wait, why).await;
    }
}

async fn page_once<T: serde::de::DeserializeOwned>(
    hub: &Inner,
    url: &url::Url,
    what: &str,
) -> std::result::Result<(T, Option<String>), Fault> {
    let mut answer = hub.web.get(url, None, None, what).await?;
    if answer.is_web_page() {
        return Err(Error::WebPage {
            host: answer.host(),
            path: "the list of files".into(),
        }
        .into());
    }
    let next = web::next_query(answer.response.headers(), url);
    let mut text = Vec::new();
    loop {
        match tokio::time::timeout(hub.settings.stall, answer.response.chunk()).await {
            Ok(Ok(Some(chunk))) => text.extend_from_slice(&chunk),
            Ok(Ok(None)) => break,
            Ok(Err(_)) | Err(_) => {
                return Err(Fault::again(format!(
                    "the connection to {} broke",
                    answer.host()
                )));
            }
        }
        if text.len() > LONGEST_PAGE {
            return Err(hub.web.refused(url, what, "its answer is too long").into());
        }
    }
    let page = serde_json::from_slice(&text).map_err(|_| {
        hub.web
            .refused(url, what, "its answer is not that of a hub")
    })?;
    Ok((page, next))
}
