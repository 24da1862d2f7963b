//! What an upgrade in place remembers in `NAME.fst.upgrade`.
//!
//! | offset | length | what |
//! |---|---|---|
//! | 0 | 8 | `FSTUPGR` and a one; a zero from versions before there were packets, which upgraded to rows |
//! | 8 | u64 | bytes of the plan |
//! | 16 | u64 | XXH3-64 of the plan |
//! | 24 | | the plan, JSON |
//! | align(4096) | 2 x 4096 | two places for the state, written in turn |
//! | after them | 8 per record | checksums of the records done |
//! | align(4096) | one record | the record that is being replaced, as it will be |
//!
//! A state is u64 number, u64 records begun, u64 checksum of the record in the journal, u64 1 once all records are done, u64 XXH3-64 of
//! these. The valid one with the higher number counts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use twox_hash::xxhash3_64::Hasher;

use super::disk::Disk;
use crate::error::{Error, Result, shown_path};
use crate::format::Metadata;
use crate::layout::{Dtype, ExpertLayout};
use crate::v2::Side;

const MAGIC: &[u8; 8] = b"FSTUPGR\x01";
/// Of a plan without a layout.
const OLDER_MAGIC: &[u8; 8] = b"FSTUPGR\0";
const PAGE: u64 = 4096;
const STATE_BYTES: usize = 40;
/// No file of a model is longer.
const MOST_BYTES: u64 = 1 << 50;
const SIDES: [Side; 3] = [Side::Hc, Side::Norm, Side::Tid2eid];
/// A plan is a config and a list of tensors.
const MOST_PLAN_BYTES: u64 = 64 << 20;

/// What is to be done; made once, from a set of files that was checked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Length of the main file before.
    pub main_bytes: u64,
    pub layers: usize,
    pub experts: usize,
    pub bank: u64,
    pub stride: u64,
    /// Layout of the records before.
    pub blocks: ExpertLayout,
    /// What the file is to say about itself, the layout of its records among it. None in plans of versions before there were packets.
    #[serde(default)]
    pub metadata: Option<Metadata>,
    /// Where the checksums of the records before are, in files that have them.
    #[serde(default)]
    pub checksums: Option<u64>,
    /// The main file's first 128 bytes before.
    pub header: Vec<u8>,
    pub config: String,
    pub tensors: Vec<Planned>,
    pub moves: Vec<Move>,
    /// Sidecars, by what follows the main file's name.
    pub sidecars: BTreeMap<String, u64>,
    /// XXH3-64 of tokenizer.json.
    pub tokenizer: Option<u64>,
    /// Where it is in the main file; none for a file of its own.
    #[serde(default)]
    pub tokenizer_at: Option<Range<u64>>,
}

impl Plan {
    /// Layout of the records after.
    pub fn layout(&self) -> Option<ExpertLayout> {
        match &self.metadata {
            Some(metadata) => Some(metadata.layout.clone()),
            None => ExpertLayout::fp4_rows(self.blocks.gate.columns, self.blocks.gate.rows),
        }
    }

    /// Whether it speaks of nothing but the model's own files, with numbers that can be reckoned with. Whoever made the folder made the journal.
    fn can_be(&self) -> bool {
        let suffixes = self.moves.iter().map(|step| &step.sidecar);
        let records = (self.layers as u64).checked_mul(self.experts as u64);
        let ends = |at: u64, bytes: u64| at.checked_add(bytes).is_some_and(|end| end <= MOST_BYTES);
        suffixes
            .chain(self.sidecars.keys())
            .all(|suffix| SIDES.iter().any(|side| side.suffix() == suffix))
            && self.stride > 0
            && records.is_some_and(|records| {
                // As the stride is the record's length, rounded up, a record is no longer than the file.
                let bank = records.checked_mul(self.stride);
                bank.is_some_and(|bank| ends(self.bank, bank))
            })
            && self.blocks.bytes as u64 <= self.stride
            && ends(self.main_bytes, 0)
            && self
                .tensors
                .iter()
                .all(|tensor| ends(tensor.offset, tensor.bytes))
            && self.moves.iter().all(|step| {
                // A piece is read whole.
                step.bytes <= self.stride
                    && ends(step.from, step.bytes)
                    && ends(step.to, step.bytes)
            })
    }
}

/// A tensor where it will be.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Planned {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub offset: u64,
    pub bytes: u64,
    /// XXH3-64 of its bytes, in files that have checksums.
    #[serde(default)]
    pub checksum: Option<u64>,
}

/// A piece of a sidecar that goes to the end of the main file; then the sidecar is cut to `from`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Move {
    pub sidecar: String,
    pub from: u64,
    pub to: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    number: u64,
    /// Records begun; the last of them is in the journal.
    pub begun: u64,
    /// Checksum of that one.
    pub checksum: u64,
    /// All records are replaced.
    pub records_done: bool,
}

impl State {
    fn encode(self) -> [u8; STATE_BYTES] {
        let mut out = [0; STATE_BYTES];
        let fields = [
            self.number,
            self.begun,
            self.checksum,
            u64::from(self.records_done),
        ];
        for (at, field) in out.chunks_exact_mut(8).zip(fields) {
            at.copy_from_slice(&field.to_le_bytes());
        }
        let checksum = Hasher::oneshot(&out[..32]);
        out[32..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    fn decode(raw: &[u8]) -> Option<Self> {
        let raw = raw.get(..STATE_BYTES)?;
        let field = |i: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&raw[8 * i..8 * i + 8]);
            u64::from_le_bytes(bytes)
        };
        (Hasher::oneshot(&raw[..32]) == field(4)).then_some(Self {
            number: field(0),
            begun: field(1),
            checksum: field(2),
            records_done: field(3) == 1,
        })
    }
}

pub(super) struct Journal {
    pub path: PathBuf,
    pub plan: Plan,
    pub state: State,
    states: u64,
    table: u64,
    payload: u64,
}

pub(super) fn path_of(main: &Path) -> PathBuf {
    let mut name = main.as_os_str().to_owned();
    name.push(".upgrade");
    PathBuf::from(name)
}

fn places(plan: &Plan, plan_bytes: u64) -> (u64, u64, u64) {
    let states = (24 + plan_bytes).next_multiple_of(PAGE);
    let table = states + 2 * PAGE;
    let payload = (table + 8 * (plan.layers * plan.experts) as u64).next_multiple_of(PAGE);
    (states, table, payload)
}

impl Journal {
    /// Writes a new journal under a temporary name and renames it when it is on the disk.
    pub fn create(main: &Path, plan: Plan, disk: &mut dyn Disk) -> Result<Self> {
        let path = path_of(main);
        let json = serde_json::to_vec(&plan).map_err(|e| Error::Original {
            message: format!("The plan of the upgrade could not be written: {e}."),
        })?;
        let (states, table, payload) = places(&plan, json.len() as u64);
        let mut bytes = MAGIC.to_vec();
        bytes.extend((json.len() as u64).to_le_bytes());
        bytes.extend(Hasher::oneshot(&json).to_le_bytes());
        bytes.extend(&json);
        bytes.resize(payload as usize, 0);
        bytes[states as usize..states as usize + STATE_BYTES]
            .copy_from_slice(&State::default().encode());
        let mut new = path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        disk.create(&new)?;
        disk.write(&new, 0, &bytes)?;
        // The whole room now: a full disk is met before anything is changed.
        disk.write(&new, payload, &vec![0; plan.blocks.bytes])?;
        disk.sync(&new)?;
        disk.rename(&new, &path)?;
        Ok(Self {
            path,
            plan,
            state: State::default(),
            states,
            table,
            payload,
        })
    }

    /// Reads the journal beside `main`; none if there is none.
    pub fn open(main: &Path) -> Result<Option<Self>> {
        let path = path_of(main);
        match fs::symlink_metadata(&path) {
            Ok(about) if about.is_symlink() => {
                return Err(Error::Original {
                    message: format!(
                        "{} is a link, and an upgrade in place would change the file it leads to. Move it away.",
                        shown_path(&path)
                    ),
                });
            }
            Ok(_) => {}
            Err(_) => return Ok(None),
        }
        let bytes = crate::read::open(&path)?;
        let damaged = || Error::Damaged {
            name: shown_path(&path),
            what: "it is not the journal of an upgrade any more".into(),
        };
        let start = bytes.start(24)?;
        let field = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(start.get(at..at + 8)?.try_into().ok()?))
        };
        let length = field(8).ok_or_else(damaged)?;
        if !(start.starts_with(MAGIC) || start.starts_with(OLDER_MAGIC)) || length > MOST_PLAN_BYTES
        {
            return Err(damaged());
        }
        let json = bytes.get(24..24 + length)?.ok_or_else(damaged)?;
        if Some(Hasher::oneshot(&json)) != field(16) {
            return Err(damaged());
        }
        let plan: Plan = serde_json::from_slice(&json).map_err(|_| damaged())?;
        if !plan.can_be() {
            return Err(damaged());
        }
        let (states, table, payload) = places(&plan, length);
        let mut kept = Vec::new();
        for at in [states, states + PAGE] {
            let end = bytes.length().min(at.saturating_add(PAGE));
            kept.extend(bytes.get(at..end)?);
        }
        let state = kept
            .iter()
            .filter_map(|bytes| State::decode(bytes))
            .filter(|state| state.begun <= (plan.layers * plan.experts) as u64)
            .filter(|state| state.number < u64::MAX)
            .max_by_key(|state| state.number)
            .ok_or_else(damaged)?;
        Ok(Some(Self {
            path,
            plan,
            state,
            states,
            table,
            payload,
        }))
    }

    /// The record in the journal, if it is whole.
    pub fn record(&self) -> Result<Option<Vec<u8>>> {
        let bytes = crate::read::open(&self.path)?;
        let end = self.payload + self.plan.blocks.bytes as u64;
        let record = bytes.get(self.payload..end)?;
        Ok(record
            .filter(|r| Hasher::oneshot(r) == self.state.checksum)
            .map(Cow::into_owned))
    }

    /// Checksums of all records, once they are done.
    pub fn checksums(&self) -> Result<Vec<u8>> {
        let bytes = fs::read(&self.path).map_err(|e| Error::io("read", &self.path, e))?;
        let length = 8 * self.plan.layers * self.plan.experts;
        bytes
            .get(self.table as usize..self.table as usize + length)
            .map(<[u8]>::to_vec)
            .ok_or_else(|| Error::Damaged {
                name: shown_path(&self.path),
                what: "its checksums are missing".into(),
            })
    }

    /// Remembers `record` as the next one; only then may it be written over its block. The record before is on the disk.
    pub fn begin(&mut self, record: &[u8], disk: &mut dyn Disk) -> Result<()> {
        let checksum = Hasher::oneshot(record);
        let at = self.table + 8 * self.state.begun;
        disk.write(&self.path, at, &checksum.to_le_bytes())?;
        disk.write(&self.path, self.payload, record)?;
        disk.sync(&self.path)?;
        self.advance(
            State {
                begun: self.state.begun + 1,
                checksum,
                ..self.state
            },
            disk,
        )
    }

    /// All records are replaced; gives the journal's room back.
    pub fn records_done(&mut self, disk: &mut dyn Disk) -> Result<()> {
        if !self.state.records_done {
            self.advance(
                State {
                    records_done: true,
                    ..self.state
                },
                disk,
            )?;
        }
        disk.set_length(&self.path, self.payload)
    }

    fn advance(&mut self, mut state: State, disk: &mut dyn Disk) -> Result<()> {
        state.number = self.state.number + 1;
        let at = self.states + PAGE * (state.number % 2);
        disk.write(&self.path, at, &state.encode())?;
        disk.sync(&self.path)?;
        self.state = state;
        Ok(())
    }
}
