//! A session on disk, so that a chat goes on after a restart without reading it again.
//!
//! | length | what |
//! |---|---|
//! | 8 | magic `FSTSESS` and a zero |
//! | u32 | version, 2 |
//! | u32 | 1 if the reference roundings are on, plus 2 if vectors are never rounded to eight bits |
//! | u64 | identity of the model's container |
//! | u64 | tokens |
//! | u32 each | the tokens |
//! | u32 | snapshots that follow, the session's own state last |
//! | each | u64 position, then the rows of every history of every layer, oldest first |
//! | rest | compressed rows and index keys of every layer |
//! | u64 | XXH3-64 of everything before |
//!
//! All little-endian; rows are `f32`. How many rows a history has follows from its position and the model, so no length in the file is
//! believed. The file is replaced by a rename when it is whole; a damaged or foreign one is an error and never a wrong answer.

use std::fs::File;
use std::hash::Hasher;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use fastar_kernels::product::Arithmetic;
use twox_hash::XxHash3_64;

use super::Session;
use crate::model::{Model, Snapshot};
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"FSTSESS\0";
const VERSION: u32 = 2;
/// Checkpoints saved with the state: the last turn's, for another answer or an edit after a restart.
const SAVED: usize = 2;

fn failed(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::SessionFile(format!("The saved state {} {what}.", path.display()))
}

pub(super) fn save(session: &Session, path: &Path) -> Result<()> {
    let io = |e: std::io::Error| failed(path, format!("could not be written: {e}"));
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let temporary =
        tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(io)?;
    let mut out = Hashed::new(BufWriter::with_capacity(1 << 20, temporary));
    write(session, &mut out).map_err(io)?;
    let sum = out.hash.finish();
    let mut buffer = out.inner;
    buffer.write_all(&sum.to_le_bytes()).map_err(io)?;
    let temporary = buffer.into_inner().map_err(|e| io(e.into_error()))?;
    temporary.as_file().sync_all().map_err(io)?;
    temporary.persist(path).map_err(|e| io(e.error))?;
    Ok(())
}

fn write(session: &Session, out: &mut impl Write) -> std::io::Result<()> {
    let model = session.engine.model();
    out.write_all(MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&roundings(model).to_le_bytes())?;
    out.write_all(&model.container().identity().to_le_bytes())?;
    out.write_all(&(session.tokens.len() as u64).to_le_bytes())?;
    for token in &session.tokens {
        out.write_all(&token.to_le_bytes())?;
    }
    let now = model.snapshot(&session.state);
    let from = session.checkpoints.len().saturating_sub(SAVED);
    let earlier = session.checkpoints[from..]
        .iter()
        .filter(|c| c.position < now.position);
    let all: Vec<&Snapshot> = earlier.chain(std::iter::once(&now)).collect();
    out.write_all(&(all.len() as u32).to_le_bytes())?;
    for snapshot in all {
        out.write_all(&(snapshot.position as u64).to_le_bytes())?;
        for history in snapshot.histories() {
            floats(history.rows(), out)?;
        }
    }
    for rows in session.state.compressed() {
        floats(rows, out)?;
    }
    Ok(())
}

/// How the model rounds: states of different roundings are not those of one sequence.
fn roundings(model: &Model) -> u32 {
    u32::from(model.reference()) + 2 * u32::from(model.arithmetic() == Arithmetic::Exact)
}

fn floats(values: &[f32], out: &mut impl Write) -> std::io::Result<()> {
    for value in values {
        out.write_all(&value.to_le_bytes())?;
    }
    Ok(())
}

pub(super) fn load(session: &mut Session, path: &Path) -> Result<()> {
    let io = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => failed(path, "is shorter than it says"),
        _ => failed(path, format!("could not be read: {e}")),
    };
    let file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    let engine = session.engine.clone();
    let (model, config) = (engine.model(), &engine.model().config);
    let mut input = Hashed::new(BufReader::with_capacity(1 << 20, file));

    let mut magic = [0; 8];
    input.read_exact(&mut magic).map_err(io)?;
    if &magic != MAGIC {
        return Err(failed(path, "is not one of FaStar's"));
    }
    let version = input.u32().map_err(io)?;
    if version != VERSION {
        return Err(failed(
            path,
            format!("has version {version} and this app reads {VERSION}"),
        ));
    }
    let rounded = input.u32().map_err(io)?;
    let identity = input.u64().map_err(io)?;
    if identity != model.container().identity() || rounded != roundings(model) {
        return Err(failed(path, "belongs to another model"));
    }
    let count = input.u64().map_err(io)?;
    if count > config.max_position_embeddings as u64 || count.saturating_mul(4) > bytes {
        return Err(failed(path, format!("claims {count} tokens")));
    }
    for _ in 0..count {
        let token = input.u32().map_err(io)?;
        if token as usize >= config.vocab_size {
            return Err(failed(path, format!("holds a token id {token}")));
        }
        session.tokens.push(token);
    }
    let snapshots = input.u32().map_err(io)?;
    if !(1..=SAVED as u32 + 1).contains(&snapshots) {
        return Err(failed(path, format!("claims {snapshots} snapshots")));
    }
    let mut all = Vec::new();
    let mut least = 0;
    for _ in 0..snapshots {
        let position = input.u64().map_err(io)?;
        if position < least || position > count {
            return Err(failed(path, format!("has a snapshot at {position}")));
        }
        least = position;
        let mut snapshot = model.snapshot(&model.state());
        snapshot.position = position as usize;
        for history in snapshot.histories_mut() {
            let rows = input
                .floats(history.values_at(position as usize))
                .map_err(io)?;
            history.set(position as usize, rows);
        }
        all.push(snapshot);
    }
    let last = match all.pop() {
        Some(last) if last.position as u64 == count => last,
        _ => return Err(failed(path, "lacks its last position")),
    };
    let lengths = model.compressed_values(last.position);
    let mut rows = Vec::new();
    for length in lengths {
        rows.push(input.floats(length).map_err(io)?);
    }
    let sum = input.hash.finish();
    let mut stored = [0; 8];
    input.inner.read_exact(&mut stored).map_err(io)?;
    if sum != u64::from_le_bytes(stored) {
        return Err(failed(path, "is damaged"));
    }
    if input.inner.read(&mut [0]).map_err(io)? != 0 {
        return Err(failed(path, "is longer than it says"));
    }
    model.resume(&last, rows, &mut session.state);
    session.checkpoints = all.into_iter().filter(|c| c.position > 0).collect();
    Ok(())
}

/// A reader or writer that hashes what passes.
struct Hashed<T> {
    inner: T,
    hash: XxHash3_64,
}

impl<T> Hashed<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            hash: XxHash3_64::default(),
        }
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.write(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Hashed<T> {
    fn read_exact(&mut self, bytes: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.hash.write(bytes);
        Ok(())
    }

    fn u32(&mut self) -> std::io::Result<u32> {
        let mut bytes = [0; 4];
        self.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        self.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Grows with what is really there: a false position cannot make it reserve more than a piece ahead.
    fn floats(&mut self, count: usize) -> std::io::Result<Vec<f32>> {
        let mut values = Vec::new();
        let mut piece = [0u8; 4096];
        let mut left = count;
        while left > 0 {
            let n = left.min(piece.len() / 4);
            self.read_exact(&mut piece[..4 * n])?;
            let (read, _) = piece[..4 * n].as_chunks::<4>();
            values.extend(read.iter().map(|b| f32::from_le_bytes(*b)));
            left -= n;
        }
        Ok(values)
    }
}
