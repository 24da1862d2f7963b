//! A piece of a file in memory: for headers and repairs, not for whole files.

use std::sync::Arc;

use reqwest::StatusCode;
use url::Url;

use crate::retry::Backoff;
use crate::web::{Fault, Web, is_page};
use crate::{Control, Error, Limiter, RemoteFile, Result, Settings};

/// A small piece of a file in memory, with the same retries but not for ever.
pub(crate) async fn read(
    web: Arc<Web>,
    settings: Settings,
    control: Control,
    file: RemoteFile,
    from: u64,
    to: u64,
) -> Result<Vec<u8>> {
    let resolve = web.resolve(&file);
    let what = format!("file {:?} of {}", file.path, file.repo);
    let mut backoff = Backoff::new(settings.first_wait, settings.longest_wait);
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let position = from + bytes.len() as u64;
        if position == to {
            return Ok(bytes);
        }
        let had = bytes.len();
        let (why, wait) = match read_once(
            &web,
            &settings,
            control.limiter(),
            &file,
            &resolve,
            &what,
            position,
            to,
            &mut bytes,
        )
        .await
        {
            Ok(()) => continue,
            Err(Fault::Final(error)) => return Err(error),
            Err(Fault::Again { why, wait }) => (why, wait),
            Err(Fault::Expired { why }) => (why, None),
        };
        if bytes.len() > had {
            backoff.progress();
        }
        let wait = backoff.next(wait);
        if backoff.failures() >= settings.tries.max(1) {
            return Err(Error::Unreachable {
                action: format!("read a part of {what}"),
                why,
            });
        }
        control.wait(wait, why).await;
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one request of `read`, split off for its own error type"
)]
async fn read_once(
    web: &Web,
    settings: &Settings,
    limiter: &Limiter,
    file: &RemoteFile,
    resolve: &Url,
    what: &str,
    position: u64,
    to: u64,
    bytes: &mut Vec<u8>,
) -> std::result::Result<(), Fault> {
    let mut answer = web
        .get(resolve, Some((position, Some(to))), None, what)
        .await?;
    if answer.is_web_page() && !is_page(&file.path) {
        return Err(Error::WebPage {
            host: answer.host(),
            path: file.path.clone(),
        }
        .into());
    }
    let mut skip = match (answer.response.status(), answer.content_range()) {
        (StatusCode::PARTIAL_CONTENT, Some((from, total)))
            if from == position && total.is_none_or(|total| total == file.bytes) =>
        {
            0
        }
        (StatusCode::OK, _)
            if answer
                .response
                .content_length()
                .is_none_or(|length| length == file.bytes) =>
        {
            position
        }
        _ => {
            return Err(Fault::again(format!(
                "{} answered with another part of the file",
                answer.host()
            )));
        }
    };
    let mut left = to - position;
    while left > 0 {
        let Ok(chunk) = tokio::time::timeout(settings.stall, answer.response.chunk()).await else {
            return Err(Fault::again(format!(
                "nothing came from {} for {} s",
                answer.host(),
                settings.stall.as_secs_f64().ceil()
            )));
        };
        let chunk = match chunk {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                return Err(Fault::again(format!(
                    "{} ended the transfer early",
                    answer.host()
                )));
            }
            Err(_) => {
                return Err(Fault::again(format!(
                    "the connection to {} broke",
                    answer.host()
                )));
            }
        };
        let skipped = skip.min(chunk.len() as u64);
        skip -= skipped;
        let useful = &chunk[skipped as usize..];
        let useful = &useful[..useful
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX))];
        bytes.extend_from_slice(useful);
        left -= useful.len() as u64;
        limiter.pass(chunk.len()).await;
    }
    Ok(())
}
