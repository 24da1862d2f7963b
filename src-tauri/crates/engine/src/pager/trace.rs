//! Which experts each token went to, in a file: for choosing a policy by replaying what really happened.
//!
//! All integers are little-endian.
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | 8 bytes | `FSTROUTE` |
//! | 8 | u32 | version, 1 |
//! | 12 | u32 | layers, 1 to 1024 |
//! | 16 | u32 | experts in each, 1 to 65536, at most 2^20 in all layers |
//! | 20 | u32 | experts a token takes in each, at most 256 |
//! | 24 | u64 | identity of the model's container, 0 where there is none |
//! | 32 | | tokens without gaps |
//!
//! A token is one byte (0: the first of a text, 1: computed together with the one before it, as those of a prompt are, 2: computed alone, as
//! those of an answer are, 3: the first of another chunk of a prompt) and then, layer by layer, its experts in ascending order: a byte
//! each, two where there are more than 256 experts. A token of Flash takes 259 bytes. A recording that was killed may end within a token;
//! what is whole is used.
//!
//! A trace replaces an older trace and nothing else ([`create`]): a slip of the hand must not cost a model.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"FSTROUTE";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const MOST_LAYERS: u32 = 1024;
const MOST_EXPERTS: u32 = 1 << 16;
const MOST_TAKEN: u32 = 256;
/// In all layers: Pro has 23,424. Replaying takes up to 250 bytes for each.
const MOST_IN_ALL: u64 = 1 << 20;

/// Experts taken in all that are read, which is 130,055 tokens of Flash: replaying takes 20 bytes and more for each. What a file has beyond is left out.
const MOST_TAKEN_IN_ALL: usize = 1 << 25;

/// What a token was to its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first token of a text, alone or with more of its prompt.
    First,
    /// A token that was computed together with the one before it.
    Prefill,
    /// A token that was computed alone: one of an answer, or the last of a prompt.
    Decode,
    /// The first token of another chunk of a prompt.
    Chunk,
}

impl Kind {
    const ALL: [Self; 4] = [Self::First, Self::Prefill, Self::Decode, Self::Chunk];

    /// As a byte of the file.
    fn code(self) -> u8 {
        self as u8
    }
}

/// Sizes of the model that was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Layers.
    pub layers: usize,
    /// Experts in each.
    pub experts: usize,
    /// Experts a token takes in each.
    pub taken: usize,
}

/// A routing trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Sizes.
    pub shape: Shape,
    /// Identity of the model's container; 0 where there is none.
    pub model: u64,
    /// The file ended within a token.
    pub cut: bool,
    /// The file has more tokens than are read.
    pub longer: bool,
    kinds: Vec<Kind>,
    /// [tokens, layers, taken].
    picked: Vec<u16>,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no trace, or a damaged one: a sentence without its name.
    #[error("{0}")]
    Damaged(String),
}

impl Trace {
    /// Without tokens.
    pub fn new(layers: usize, experts: usize, taken: usize) -> Self {
        Self {
            shape: Shape {
                layers,
                experts,
                taken,
            },
            model: 0,
            cut: false,
            longer: false,
            kinds: Vec::new(),
            picked: Vec::new(),
        }
    }

    /// Adds a token with its experts, [layers, taken].
    pub fn push(&mut self, kind: Kind, picked: &[u16]) {
        debug_assert_eq!(picked.len(), self.shape.layers * self.shape.taken);
        self.kinds.push(kind);
        self.picked.extend_from_slice(picked);
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.kinds.len()
    }

    /// What each token was.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The tokens that were computed together, step by step: a chunk of a prompt, or one token.
    pub fn steps(&self) -> Vec<Range<usize>> {
        let mut steps: Vec<Range<usize>> = Vec::new();
        for (token, kind) in self.kinds.iter().enumerate() {
            match steps.last_mut() {
                Some(step) if *kind == Kind::Prefill && self.kinds[step.start] != Kind::Decode => {
                    step.end = token + 1;
                }
                _ => steps.push(token..token + 1),
            }
        }
        steps
    }

    /// The experts of a token in a layer.
    pub fn picked(&self, token: usize, layer: usize) -> &[u16] {
        let Shape { layers, taken, .. } = self.shape;
        let at = (token * layers + layer) * taken;
        &self.picked[at..at + taken]
    }

    /// Reads a trace, or the beginning of one that is very long. Nothing in it is trusted.
    pub fn read(from: impl Read) -> Result<Self, TraceError> {
        Self::read_up_to(MOST_TAKEN_IN_ALL, from)
    }

    fn read_up_to(most_taken: usize, mut from: impl Read) -> Result<Self, TraceError> {
        let damaged = |what: String| TraceError::Damaged(what);
        let mut header = [0; HEADER_BYTES];
        if fill(&mut from, &mut header)? < HEADER_BYTES || !header.starts_with(&MAGIC) {
            return Err(damaged("is not a routing trace of FaStar".into()));
        }
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if number(8) != VERSION {
            return Err(damaged(format!(
                "is a routing trace of version {}, and this program reads version {VERSION}",
                number(8)
            )));
        }
        let (layers, experts, taken) = (number(12), number(16), number(20));
        if !(1..=MOST_LAYERS).contains(&layers)
            || !(1..=MOST_EXPERTS).contains(&experts)
            || !(1..=MOST_TAKEN.min(experts)).contains(&taken)
            || u64::from(layers) * u64::from(experts) > MOST_IN_ALL
        {
            return Err(damaged(format!(
                "is damaged: {layers} layers of {experts} experts, of which {taken} are taken, are impossible"
            )));
        }
        let mut trace = Self::new(layers as usize, experts as usize, taken as usize);
        let (low, high) = (u64::from(number(24)), u64::from(number(28)));
        trace.model = low | high << 32;
        let wide = experts > 256;
        let count = trace.shape.layers * trace.shape.taken;
        // Bounded by the limits above.
        let mut record = vec![0; 1 + count * if wide { 2 } else { 1 }];
        let mut sorted = Vec::with_capacity(trace.shape.taken);
        loop {
            let got = fill(&mut from, &mut record)?;
            if got < record.len() {
                trace.cut = got > 0;
                return Ok(trace);
            }
            let token = trace.tokens();
            if trace.picked.len() + count > most_taken {
                trace.longer = true;
                return Ok(trace);
            }
            let Some(kind) = Kind::ALL.get(usize::from(record[0])) else {
                return Err(damaged(format!(
                    "is damaged: token {token} is of kind {}",
                    record[0]
                )));
            };
            trace.kinds.push(*kind);
            if wide {
                let (pairs, _) = record[1..].as_chunks::<2>();
                trace
                    .picked
                    .extend(pairs.iter().map(|pair| u16::from_le_bytes(*pair)));
            } else {
                trace
                    .picked
                    .extend(record[1..].iter().map(|b| u16::from(*b)));
            }
            let last = &trace.picked[token * count..];
            if let Some(bad) = last.iter().find(|e| u32::from(**e) >= experts) {
                return Err(damaged(format!(
                    "is damaged: token {token} goes to expert {bad}, and there are {experts}"
                )));
            }
            for (layer, picked) in last.chunks_exact(trace.shape.taken).enumerate() {
                sorted.clear();
                sorted.extend_from_slice(picked);
                sorted.sort_unstable();
                if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                    return Err(damaged(format!(
                        "is damaged: token {token} goes to expert {} of layer {layer} twice",
                        twice[0]
                    )));
                }
            }
        }
    }

    /// Writes it whole.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut recorder = Recorder::new(to, self.shape, self.model)?;
        for (token, kind) in self.kinds.iter().enumerate() {
            let count = self.shape.layers * self.shape.taken;
            recorder.token(*kind, &self.picked[token * count..(token + 1) * count])?;
        }
        recorder.flush()
    }
}

/// Writes a trace token by token.
pub struct Recorder<W: Write> {
    to: W,
    wide: bool,
    record: Vec<u8>,
}

impl<W: Write> Recorder<W> {
    /// Writes the header.
    pub fn new(mut to: W, shape: Shape, model: u64) -> io::Result<Self> {
        let number = |n: usize, most: u32| {
            u32::try_from(n)
                .ok()
                .filter(|n| (1..=most).contains(n))
                .ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidInput,
                        "the model is too large to be traced",
                    )
                })
        };
        let in_all = shape.layers.saturating_mul(shape.experts);
        number(in_all, MOST_IN_ALL as u32)?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        for n in [
            VERSION,
            number(shape.layers, MOST_LAYERS)?,
            number(shape.experts, MOST_EXPERTS)?,
            number(shape.taken, MOST_TAKEN)?,
        ] {
            header.extend_from_slice(&n.to_le_bytes());
        }
        header.extend_from_slice(&model.to_le_bytes());
        to.write_all(&header)?;
        Ok(Self {
            to,
            wide: shape.experts > 256,
            record: Vec::new(),
        })
    }

    /// Adds a token with its experts, [layers, taken].
    pub fn token(&mut self, kind: Kind, picked: &[u16]) -> io::Result<()> {
        self.record.clear();
        self.record.push(kind.code());
        for expert in picked {
            let [low, high] = expert.to_le_bytes();
            self.record.push(low);
            if self.wide {
                self.record.push(high);
            }
        }
        self.to.write_all(&self.record)
    }

    /// Makes sure that all is written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes a trace into a new file, as [`create`] makes it; whole, or there is none.
pub fn save(trace: &Trace, path: &Path) -> crate::Result<()> {
    let file = create(path)?;
    trace
        .write(BufWriter::new(file))
        .map_err(|e| unwritten(path, &e))
}

/// Takes away what was begun of a trace, and says why.
fn unwritten(path: &Path, error: &io::Error) -> crate::Error {
    let left = match fs::remove_file(path) {
        Ok(()) => "",
        Err(_) => " A useless file is left there.",
    };
    crate::Error::Input(format!(
        "The routing trace cannot be written to {}: {}{left}",
        path.display(),
        fastar_files::unwritten(error)
    ))
}

/// Opens a file for a new trace: one that is not there yet, is empty, or holds an older trace, which is cut to nothing.
///
/// # Errors
/// A sentence when the name is that of anything else, or the system refuses.
pub fn create(path: &Path) -> crate::Result<File> {
    let name = path.display();
    let refused = |what: &str| {
        crate::Error::Input(format!(
            "{name} {what}, so no routing trace is written there. Choose another name."
        ))
    };
    let failed = |e: io::Error| {
        crate::Error::Input(format!(
            "The routing trace cannot be written to {name}: {}",
            fastar_files::unwritten(&e)
        ))
    };
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_symlink() => return Err(refused("is a link")),
        Ok(about) if !about.is_file() => return Err(refused("is not a regular file")),
        _ => {}
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = fastar_files::open(path, &mut options).map_err(failed)?;
    let mut begin = [0; MAGIC.len()];
    let there = fill(&mut file, &mut begin).map_err(failed)?;
    if there > 0 && begin != MAGIC {
        return Err(refused("is a file of another kind"));
    }
    file.set_len(0).map_err(failed)?;
    io::Seek::rewind(&mut file).map_err(failed)?;
    Ok(file)
}

/// A trace on its way to a file. A disk that fails ends the recording, not the answer; [`failure`](Self::failure) tells.
pub struct Recording {
    path: PathBuf,
    recorder: Recorder<BufWriter<Box<dyn Write + Send>>>,
    /// Whole tokens that are in the file.
    tokens: u64,
    failed: Option<io::Error>,
}

impl Recording {
    /// Begins a new file, as [`create`] does. Where not even its beginning can be written there is none.
    pub fn new(path: &Path, shape: Shape, model: u64) -> crate::Result<Self> {
        let file = create(path)?;
        Self::to(path, Box::new(file), shape, model).map_err(|e| unwritten(path, &e))
    }

    fn to(path: &Path, file: Box<dyn Write + Send>, shape: Shape, model: u64) -> io::Result<Self> {
        let mut recorder = Recorder::new(BufWriter::new(file), shape, model)?;
        recorder.flush()?;
        Ok(Self {
            path: path.to_owned(),
            recorder,
            tokens: 0,
            failed: None,
        })
    }

    /// Adds the tokens of a step, each with its experts, [layers, taken], and writes them to the file: whatever ends the program later, they
    /// are there.
    pub fn step<'a>(&mut self, tokens: impl Iterator<Item = (Kind, &'a [u16])>) {
        if self.failed.is_some() {
            return;
        }
        let mut count = 0;
        let written = tokens
            .inspect(|_| count += 1)
            .try_for_each(|(kind, picked)| self.recorder.token(kind, picked))
            .and_then(|()| self.recorder.flush());
        match written {
            Ok(()) => self.tokens += count,
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "the routing trace ends here");
                self.failed = Some(error);
            }
        }
    }

    /// That and why the recording ended early, a sentence.
    pub fn failure(&self) -> Option<String> {
        let error = self.failed.as_ref()?;
        Some(format!(
            "The routing trace {} ends after {} tokens, for it could not be written: {}",
            self.path.display(),
            self.tokens,
            fastar_files::unwritten(error)
        ))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the whole tokens in the file, and of its header.
    pub fn bytes(&self) -> u64 {
        (HEADER_BYTES + self.tokens as usize * self.recorder.record.len()) as u64
    }

    /// Whether the disk took everything so far.
    pub fn is_whole(&self) -> bool {
        self.failed.is_none()
    }
}

/// Reads until the buffer is full or nothing comes any more; how much came.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match from.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn sample(experts: usize) -> Trace {
        let mut trace = Trace::new(2, experts, 2);
        trace.model = 0x0123_4567_89AB_CDEF;
        let last = (experts - 1) as u16;
        trace.push(Kind::First, &[0, 1, 2, last]);
        trace.push(Kind::Prefill, &[3, 4, 0, last]);
        trace.push(Kind::Decode, &[1, 2, 3, 4]);
        trace
    }

    fn written(trace: &Trace) -> Vec<u8> {
        let mut bytes = Vec::new();
        trace.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn of_a_very_long_file_the_beginning_is_read() {
        let trace = sample(256);
        let bytes = written(&trace);
        // Four experts a token.
        for (most, tokens) in [(12, 3), (11, 2), (8, 2), (4, 1), (3, 0)] {
            let read = Trace::read_up_to(most, &bytes[..]).unwrap();
            assert_eq!((read.tokens(), read.longer), (tokens, tokens < 3), "{most}");
            assert_eq!(read.kinds(), &trace.kinds()[..tokens]);
        }
    }

    #[test]
    fn the_file_is_as_documented_and_comes_back() {
        let bytes = written(&sample(256));
        assert_eq!(&bytes[..8], b"FSTROUTE");
        assert_eq!(
            bytes[8..24],
            [1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0]
        );
        assert_eq!(
            bytes[24..32],
            [0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01]
        );
        assert_eq!(
            bytes[32..],
            [0, 0, 1, 2, 255, 1, 3, 4, 0, 255, 2, 1, 2, 3, 4]
        );
        assert_eq!(Trace::read(&bytes[..]).unwrap(), sample(256));
        // Two bytes for each expert.
        let bytes = written(&sample(300));
        assert_eq!(bytes[32..41], [0, 0, 0, 1, 0, 2, 0, 43, 1]);
        assert_eq!(Trace::read(&bytes[..]).unwrap(), sample(300));
    }

    #[test]
    fn a_cut_recording_keeps_its_whole_tokens() {
        let bytes = written(&sample(256));
        let trace = Trace::read(&bytes[..bytes.len() - 2]).unwrap();
        assert!(trace.cut);
        assert_eq!(trace.kinds(), [Kind::First, Kind::Prefill]);
        assert_eq!(trace.picked(1, 1), [0, 255]);
        let whole = Trace::read(&bytes[..]).unwrap();
        assert!(!whole.cut);
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        let bytes = written(&sample(200));
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            Trace::read(&bytes[..]).unwrap_err().to_string()
        };
        assert_eq!(changed(0, b'X'), "is not a routing trace of FaStar");
        assert!(changed(8, 2).contains("of version 2"));
        assert!(changed(15, 255).contains("are impossible"), "layers");
        assert!(changed(12, 0).contains("are impossible"), "no layers");
        assert!(changed(19, 255).contains("are impossible"), "experts");
        let mut large = Trace::new(16, 1 << 16, 1);
        large.push(Kind::First, &[0; 16]);
        assert_eq!(Trace::read(&written(&large)[..]).unwrap(), large);
        let mut bytes = written(&large);
        bytes[12] += 1;
        let error = Trace::read(&bytes[..]).unwrap_err().to_string();
        assert!(error.contains("17 layers of 65536 experts"), "{error}");
        assert!(
            changed(20, 201).contains("are impossible"),
            "more than there are"
        );
        assert!(changed(32, 4).contains("token 0 is of kind 4"));
        assert!(changed(38, 200).contains("token 1 goes to expert 200, and there are 200"));
        // The third token has 1 and 2 in the first layer, 3 and 4 in the second.
        for (at, expert, says) in [
            (43, 2, "token 2 goes to expert 2 of layer 0 twice"),
            (45, 4, "token 2 goes to expert 4 of layer 1 twice"),
        ] {
            let told = changed(at, expert);
            assert!(told.contains(says), "{told}");
        }
        assert!(Trace::read(&bytes[..31]).is_err());
        assert!(Trace::read(&b""[..]).is_err());
    }

    #[test]
    fn steps_are_what_was_computed_together() {
        use Kind::{Chunk, Decode, First, Prefill};
        let mut trace = Trace::new(1, 2, 1);
        let kinds = [
            First, Prefill, Prefill, Chunk, Prefill, Decode, Decode, First, Chunk, Prefill, Decode,
        ];
        kinds.iter().for_each(|kind| trace.push(*kind, &[0]));
        let steps = trace.steps();
        assert_eq!(steps, [0..3, 3..5, 5..6, 6..7, 7..8, 8..10, 10..11]);
        // What was computed alone has nothing behind it.
        let mut trace = Trace::new(1, 2, 1);
        for kind in [Decode, Prefill, Prefill] {
            trace.push(kind, &[0]);
        }
        assert_eq!(trace.steps(), [0..1, 1..3]);
        assert!(Trace::new(1, 2, 1).steps().is_empty());
    }

    #[test]
    fn a_trace_replaces_a_trace_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let record = |name: &str| {
            let mut recording = Recording::new(&at(name), sample(256).shape, 5)?;
            recording.step([(Kind::First, &[0u16, 1, 2, 3][..])].into_iter());
            crate::Result::Ok(recording)
        };
        fs::write(at("empty"), b"").unwrap();
        fs::write(at("older"), written(&sample(256))).unwrap();
        for name in ["new", "empty", "older"] {
            let recording = record(name).unwrap();
            // Without waiting for its end.
            let read = Trace::read(File::open(at(name)).unwrap()).unwrap();
            assert_eq!((read.model, read.tokens(), read.cut), (5, 1, false));
            assert_eq!(recording.failure(), None);
        }
        let precious: [&[u8]; 3] = [b"FSTv precious weights", b"FSTROUT", &[0; 100]];
        for bytes in precious {
            fs::write(at("model"), bytes).unwrap();
            let error = record("model").err().unwrap().to_string();
            assert!(error.contains("is a file of another kind"), "{error}");
            assert_eq!(fs::read(at("model")).unwrap(), bytes);
        }
        let error = Recording::new(folder.path(), sample(256).shape, 0).err();
        let error = error.unwrap().to_string();
        assert!(error.contains("is not a regular file"), "{error}");
        assert!(Recording::new(&at("none/file"), sample(256).shape, 0).is_err());
        #[cfg(unix)]
        for to in ["older", "nowhere"] {
            std::os::unix::fs::symlink(at(to), at("link")).unwrap();
            let before = fs::read(at(to)).ok();
            let error = record("link").err().unwrap().to_string();
            assert!(error.contains("is a link"), "{error}");
            assert_eq!(fs::read(at(to)).ok(), before);
            fs::remove_file(at("link")).unwrap();
        }
    }

    /// A file on a disk that is full after some bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.0);
            self.0 -= n;
            match n {
                0 => Err(io::ErrorKind::StorageFull.into()),
                n => Ok(n),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_is_full_is_told_with_what_was_kept() {
        // The header and two tokens of five bytes, then half of one.
        let shape = sample(256).shape;
        let path = Path::new("a trace");
        let mut recording = Recording::to(path, Box::new(Full(32 + 12)), shape, 0).unwrap();
        for _ in 0..2 {
            recording.step([(Kind::First, &[0u16, 1, 2, 3][..])].into_iter());
            assert_eq!(recording.failure(), None);
        }
        for _ in 0..2 {
            recording.step([(Kind::Decode, &[0u16, 1, 2, 3][..])].into_iter());
            let failure = recording.failure().unwrap();
            assert!(
                failure.starts_with("The routing trace a trace ends after 2 tokens, for"),
                "{failure}"
            );
        }
        assert!(Recording::to(path, Box::new(Full(31)), shape, 0).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(tail in proptest::collection::vec(any::<u8>(), 0..200), at in 8usize..32, value: u8) {
            let mut bytes = written(&sample(256));
            bytes.extend(tail);
            bytes[at] = value;
            if let Ok(trace) = Trace::read(&bytes[..]) {
                let Shape { layers, experts, .. } = trace.shape;
                for token in 0..trace.tokens() {
                    for layer in 0..layers {
                        let picked = trace.picked(token, layer);
                        prop_assert!(picked.iter().all(|e| usize::from(*e) < experts));
                        let distinct: std::collections::BTreeSet<_> = picked.iter().collect();
                        prop_assert_eq!(distinct.len(), picked.len());
                    }
                }
            }
        }
    }
}
