//! One request of a transfer: what is asked, whether the answer is that, and its bytes on their way to the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use reqwest::StatusCode;

use super::{End, Job, Source, Stop, blocking, locked, put};
use crate::blocks::Cursor;
use crate::progress::{Activity, Line};
use crate::retry::Backoff;
use crate::snapshot::clean_etag;
use crate::web::{Answer, Fault, is_page, looks_like_a_page};
use crate::{Error, Result};

/// Bytes that are written at once; what a kill can lose on a connection besides the socket's own buffer.
const FLUSH: usize = 512 << 10;
/// Skipping costs the line what is there already, so a single wrong answer is only asked again.
const MOST_WRONG_RANGES: u32 = 3;

/// One request.
pub(super) async fn attempt(
    job: &Arc<Job>,
    source: &Arc<Source>,
    cursor: &mut Option<Cursor>,
    end: u64,
    backoff: &mut Backoff,
    line: &Line,
) -> std::result::Result<(), End> {
    let file = &source.table.file;
    let mut position = cursor.as_ref().map_or(0, Cursor::position);
    let Ok(_permit) = job
        .unless_stopped(&source.quit, job.connections.acquire())
        .await
        .map_err(End::Stop)?
    else {
        return Err(End::Stop(Stop::Halt));
    };
    let start = locked(&source.address).unwrap_or_else(|| source.resolve.clone());
    let whole = position == 0 && end == file.bytes
        || source.wrong_ranges.load(Ordering::Relaxed) >= MOST_WRONG_RANGES;
    let part = (!whole).then(|| (position, (end != file.bytes).then_some(end)));
    let etag = locked(&source.etag);
    let asked = job.web.get(&start, part, etag.as_deref(), &source.what);
    let mut answer = job
        .unless_stopped(&source.quit, asked)
        .await
        .map_err(End::Stop)??;
    let mut skip = accept(source, &answer, position)?;
    if answer.url.origin() != source.resolve.origin() {
        put(&source.address, Some(answer.url.clone()));
    }
    source.served.store(true, Ordering::Relaxed);
    line.set(Activity::Receiving(Instant::now()));
    let host = answer.host();
    let mut buffer = Vec::with_capacity(FLUSH + (64 << 10));
    let ended = loop {
        if position + buffer.len() as u64 == end {
            break Ok(());
        }
        let next = tokio::time::timeout(job.settings.stall, answer.response.chunk());
        let chunk = match job.unless_stopped(&source.quit, next).await {
            Err(stop) => break Err(End::Stop(stop)),
            Ok(Err(_)) => {
                break Err(Fault::again(format!(
                    "nothing came from {host} for {} s",
                    job.settings.stall.as_secs_f64().ceil()
                ))
                .into());
            }
            Ok(Ok(Err(_))) => {
                break Err(Fault::again(format!("the connection to {host} broke")).into());
            }
            Ok(Ok(Ok(None))) => {
                break Err(Fault::again(format!("{host} ended the transfer early")).into());
            }
            Ok(Ok(Ok(Some(chunk)))) => chunk,
        };
        job.board
            .fetched
            .fetch_add(chunk.len() as u64, Ordering::Relaxed);
        line.set(Activity::Receiving(Instant::now()));
        let skipped = skip.min(chunk.len() as u64);
        skip -= skipped;
        let room = end - position - buffer.len() as u64;
        let useful = &chunk[skipped as usize..];
        let useful = &useful[..useful
            .len()
            .min(usize::try_from(room).unwrap_or(usize::MAX))];
        if position == 0 && buffer.is_empty() && looks_like_a_page(useful) && !is_page(&file.path) {
            return Err(Error::WebPage {
                host,
                path: file.path.clone(),
            }
            .into());
        }
        buffer.extend_from_slice(useful);
        if !useful.is_empty() {
            backoff.progress();
        }
        if buffer.len() >= FLUSH {
            position = flush(job, source, cursor, &mut buffer).await?;
        }
        if let Err(stop) = job
            .unless_stopped(&source.quit, job.control.limiter().pass(chunk.len()))
            .await
        {
            break Err(End::Stop(stop));
        }
        line.set(Activity::Receiving(Instant::now()));
    };
    drop(answer);
    flush(job, source, cursor, &mut buffer).await?;
    ended
}

async fn flush(
    job: &Arc<Job>,
    source: &Arc<Source>,
    cursor: &mut Option<Cursor>,
    buffer: &mut Vec<u8>,
) -> Result<u64> {
    let Some(mut at) = cursor.take() else {
        return Err(Error::Cancelled);
    };
    let bytes = std::mem::take(buffer);
    let table = source.table.clone();
    let before = at.position();
    let (at, bytes) = blocking(move || {
        table.append(&mut at, &bytes)?;
        Ok((at, bytes))
    })
    .await?;
    *buffer = bytes;
    buffer.clear();
    let position = at.position();
    job.gain(position - before);
    *cursor = Some(at);
    Ok(position)
}

/// Whether the body is what was asked for, and how many of its first bytes are there already.
fn accept(source: &Source, answer: &Answer, position: u64) -> std::result::Result<u64, End> {
    let file = &source.table.file;
    if answer.is_web_page() && !is_page(&file.path) {
        return Err(Error::WebPage {
            host: answer.host(),
            path: file.path.clone(),
        }
        .into());
    }
    let changed = |found: u64| Error::Changed {
        repo: file.repo.clone(),
        path: file.path.clone(),
        problem: format!("it has {found} bytes now instead of {}", file.bytes),
    };
    if let Some(found) = answer.linked_size.filter(|found| *found != file.bytes) {
        return Err(changed(found).into());
    }
    let status = answer.response.status();
    let range = answer.content_range();
    if let Some((_, Some(found))) =
        range.filter(|(_, total)| total.is_some_and(|total| total != file.bytes))
    {
        return Err(changed(found).into());
    }
    if status != StatusCode::RANGE_NOT_SATISFIABLE {
        same_contents(source, answer)?;
    }
    match status {
        StatusCode::PARTIAL_CONTENT if range.is_some_and(|(from, _)| from == position) => {
            source.wrong_ranges.store(0, Ordering::Relaxed);
            Ok(0)
        }
        StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
            source.wrong_ranges.fetch_add(1, Ordering::Relaxed);
            Err(Fault::again(format!(
                "{} answered with another part of the file",
                answer.host()
            ))
            .into())
        }
        StatusCode::OK => match answer.response.content_length() {
            Some(found) if found != file.bytes => Err(changed(found).into()),
            _ => Ok(position),
        },
        status => Err(Fault::again(format!(
            "{} answered with status {}",
            answer.host(),
            status.as_u16()
        ))
        .into()),
    }
}

/// Compares what the server calls the contents with what it called them before: its own hash if it names one, else the ETag.
fn same_contents(source: &Source, answer: &Answer) -> std::result::Result<(), End> {
    let table = &source.table;
    let etag = answer.etag();
    let plain = etag.as_deref().map(|etag| clean_etag(etag).to_owned());
    let name = match (&answer.linked, &plain) {
        (Some(linked), _) => Some(format!("linked:{linked}")),
        (None, Some(etag)) => Some(format!("etag:{etag}")),
        (None, None) => None,
    };
    if let Some(name) = name {
        match table.identity() {
            Some(known) if known.starts_with("linked:") && name.starts_with("etag:") => {
                // A signed address names the copy only. Another copy than before: let the hub say whether it is the same file.
                let before = locked(&source.etag);
                if before.is_some_and(|before| Some(clean_etag(&before)) != plain.as_deref()) {
                    put(&source.etag, None);
                    return Err(Fault::Expired {
                        why: format!("{} names the file differently", answer.host()),
                    }
                    .into());
                }
            }
            Some(known)
                if known.starts_with("etag:") == name.starts_with("etag:") && known != name =>
            {
                put(&source.etag, None);
                return Err(End::Changed(format!(
                    "{} says that the file was changed (another ETag)",
                    answer.host()
                )));
            }
            _ => table.set_identity(&name)?,
        }
    }
    put(&source.etag, etag);
    Ok(())
}
