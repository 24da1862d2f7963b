//! What this computer would do with the recommended model before anything of it is here: whether it fits, and about how fast answers would be.
//!
//! The speed is worked out and not tried: every token reads the dense weights and its experts from memory, and those experts that are not
//! in the cache from the disk. How fast memory and disk are is measured here, for a moment; how often an expert is in a cache of some size is taken
//! from a trace made up after published measurements ([`HIT_RATES`]). So it is a range, and it says so. Once a model is loaded, its own
//! measurements count ([`crate::App::cache_plan`]).

use std::io::Write as _;
use std::path::Path;

use fastar_api::{ApiError, CatalogueEntry, Hardware, MachinePlan, SpeedEstimate};
use fastar_engine::plan::{self, Available, Bound, Need};
use fastar_probe::{Memory, Threads, direct, machine, median};

use crate::error::{Error, Result, lock};
use crate::library::catalogue;
use crate::{App, clock};

/// One expert of Flash, in bytes: three matrices of 4096 by 2048 in MXFP4, 17 bytes for 32 weights.
const EXPERT: u64 = 3 * 4096 * 2048 / 32 * 17;
/// In 43 layers of 256 each.
const EXPERTS: u64 = 43 * 256;
/// Experts that a token takes in a layer, ...
const TAKEN: u64 = 6;
/// ... and in all layers.
const TAKEN_IN_ALL: u64 = 43 * TAKEN;
/// The embedding stays in the file: a token takes one row of it. 129,280 rows of 4096 in two bytes each.
const EMBEDDING: u64 = 129_280 * 4096 * 2;
/// Conversations of some length, buffers for a prompt, the tokenizer and the program, rounded up.
const OTHERS: u64 = 1_200_000_000;
/// Share of cache and share of uses that fall on it, for a cache that goes by frequency: 600 tokens of a trace made up to lie between
/// published measurements of this model.
const HIT_RATES: [(f64, f64); 8] = [
    (0.0, 0.0),
    (0.045, 0.26),
    (0.10, 0.42),
    (0.153, 0.52),
    (0.25, 0.66),
    (0.33, 0.75),
    (0.50, 0.87),
    (1.0, 1.0),
];
/// Of the memory's speed, what computing a token reaches at least.
const REACHED: f64 = 0.8;

/// Bytes read from memory: more than any processor's cache.
const MEMORY_BYTES: usize = 192 << 20;
/// A quarter of an expert at a time, as many as wait at once, and so many in all.
const PIECE: usize = EXPERT as usize / 4;
const AT_ONCE: usize = 8;
const PIECES: u64 = 16;
/// A disk that is this full is not written to for a measurement.
const LEAST_FREE: u64 = 1_000_000_000;

/// What memory and disk do, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    memory: f64,
    disk: f64,
    /// When that was, in milliseconds since 1970.
    at: u64,
}

impl App {
    /// What this computer would do with the recommended model. Its speed only where [`App::machine_measure`] was asked before.
    pub fn machine_plan(&self) -> MachinePlan {
        let measured = lock(&self.0.measured).clone();
        let (rates, problem) = match measured {
            Some(Ok(rates)) => (Some(rates), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        let bound = plan::available(Path::new("/")).map_or(Bound::Machine, |now| now.bound);
        prospect(self.hardware(), bound, &recommended(), rates, problem)
    }

    /// Measures memory and disk for a moment, once unless `again`, and says what this computer would do with the recommended model. A file
    /// of some megabytes is written beside the models for it, and removed.
    pub fn machine_measure(&self, again: bool) -> MachinePlan {
        {
            let mut measured = lock(&self.0.measured);
            if again || !matches!(*measured, Some(Ok(_))) {
                let folder = self.models_folder();
                let rates = measure(&folder).map_err(|error| ApiError::from(error).message);
                *measured = Some(rates);
            }
        }
        self.machine_plan()
    }
}

fn recommended() -> CatalogueEntry {
    catalogue::entries().swap_remove(0)
}

/// Bytes of the weights that are always in memory.
fn dense(entry: &CatalogueEntry) -> u64 {
    let without_drafter = entry.download_bytes - entry.drafter_bytes.unwrap_or(0);
    without_drafter.saturating_sub(EXPERTS * EXPERT + EMBEDDING)
}

fn prospect(
    hardware: Hardware,
    bound: Bound,
    entry: &CatalogueEntry,
    rates: Option<Rates>,
    not_measured: Option<String>,
) -> MachinePlan {
    let drafter = entry.drafter_bytes.unwrap_or(0);
    let peak_bytes = entry.peak_bytes - drafter;
    let dense = dense(entry);
    let need = Need {
        dense,
        conversations: 0,
        work: OTHERS,
        slot: EXPERT,
        experts: usize::try_from(EXPERTS).unwrap_or(usize::MAX),
        fewest: usize::try_from(TAKEN).unwrap_or(usize::MAX),
    };
    let available = hardware
        .available_bytes
        .map(|bytes| Available { bytes, bound });
    let refusal = plan::refusal(available, &need);
    let plan = plan::plan(available, &need, None);
    let share = plan.slots as f64 / EXPERTS as f64;
    MachinePlan {
        measured_at: rates.map(|rates| rates.at),
        entry: entry.id.clone(),
        name: entry.name.clone(),
        download_bytes: entry.download_bytes - drafter,
        peak_bytes,
        fits_disk: hardware.models.free_bytes.map(|free| free >= peak_bytes),
        dense_bytes: dense,
        cache_bytes: plan.cache_bytes,
        slots: plan.slots as u64,
        experts: EXPERTS,
        fits_memory: hardware.available_bytes.map(|_| refusal.is_none()),
        speed: rates
            .filter(|_| refusal.is_none() && hardware.available_bytes.is_some())
            .map(|rates| speed(rates, dense, share)),
        memory_note: refusal.or(plan.note),
        not_measured,
        hardware,
    }
}

/// Between reading and computing one after the other, at what computing reaches at least, and both always at once.
fn speed(rates: Rates, dense: u64, share: f64) -> SpeedEstimate {
    let hit_rate = hit_rate(share);
    let experts = (TAKEN_IN_ALL * EXPERT) as f64;
    let compute = (dense as f64 + experts) / rates.memory;
    let wait = (1.0 - hit_rate) * experts / rates.disk;
    SpeedEstimate {
        least: 1.0 / (compute / REACHED + wait),
        most: 1.0 / compute.max(wait),
        memory_rate: rates.memory,
        disk_rate: rates.disk,
        hit_rate,
    }
}

/// The line through [`HIT_RATES`].
fn hit_rate(share: f64) -> f64 {
    HIT_RATES
        .windows(2)
        .find_map(|pair| {
            let [(x0, y0), (x1, y1)] = *pair else {
                return None;
            };
            (share <= x1).then(|| y0 + (y1 - y0) * ((share - x0) / (x1 - x0)).max(0.0))
        })
        .unwrap_or(1.0)
}

fn measure(folder: &Path) -> Result<Rates> {
    Ok(Rates {
        disk: disk_rate(folder)?,
        memory: memory_rate()?,
        at: clock::now().unsigned_abs(),
    })
}

fn memory_rate() -> Result<f64> {
    let threads = fastar_kernels::processors::Processors::find().threads();
    let threads = Threads::new(threads)?;
    let mut memory = Memory::new(MEMORY_BYTES).map_err(|error| {
        Error::BadRequest(format!(
            "There is no memory to measure with: {error}. Close other programs and try again."
        ))
    })?;
    // Pages that were never written are all one and the same.
    memory.fill(1);
    Ok(1e9 * median((0..5).map(|_| machine::reading(&threads, &memory))))
}

fn disk_rate(folder: &Path) -> Result<f64> {
    let there = folder
        .ancestors()
        .find(|ancestor| ancestor.is_dir())
        .unwrap_or(folder);
    if crate::library::free_bytes(there).is_some_and(|free| free < LEAST_FREE) {
        return Err(Error::BadRequest(format!(
            "The disk of {} was not measured, because it is nearly full.",
            there.display()
        )));
    }
    let file = tempfile::Builder::new()
        .prefix(".fastar-measure-")
        .tempfile_in(there)
        .map_err(Error::file(there))?;
    let whole = direct::open(file.path()).map_err(|_| {
        Error::BadRequest(format!(
            "The disk of {} cannot be measured: its file system reads through memory only.",
            there.display()
        ))
    })?;
    let (mut file, name) = file.into_parts();
    // Without a name it is gone with this process, however that ends.
    name.close().map_err(Error::file(there))?;
    // What is all zeros, some disks do not keep at all.
    let piece: Vec<u8> = (0..PIECE as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    for _ in 0..PIECES {
        file.write_all(&piece).map_err(Error::file(there))?;
    }
    file.sync_all().map_err(Error::file(there))?;
    // In no order, as experts are.
    let places: Vec<u64> = (0..PIECES)
        .map(|i| (i * 7) % PIECES * PIECE as u64)
        .collect();
    let reads = direct::read(&whole, &places, PIECE, AT_ONCE).map_err(Error::file(there))?;
    Ok(1e9 * reads.rate())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use fastar_api::{Disk, Instructions};

    use super::*;

    fn computer(available: Option<u64>, free: Option<u64>) -> Hardware {
        let disk = |free_bytes| Disk {
            folder: "/m".into(),
            free_bytes,
        };
        Hardware {
            system: "s".into(),
            processor: "p".into(),
            instructions: Instructions::Avx2,
            processors: 16,
            cores: 8,
            quota: None,
            threads: 8,
            memory_bytes: Some(64_000_000_000),
            available_bytes: available,
            data: disk(free),
            models: disk(free),
            npu: false,
        }
    }

    fn of(available: Option<u64>, free: Option<u64>, rates: Option<Rates>) -> MachinePlan {
        prospect(
            computer(available, free),
            Bound::Machine,
            &recommended(),
            rates,
            None,
        )
    }

    #[test]
    fn sizes_are_those_of_the_shards_and_of_the_experts() {
        // By hand: 25,165,824 weights, 17 bytes for 32 of them; 156,023,192,948 bytes of shards.
        assert_eq!(EXPERT, 13_369_344);
        let plan = of(None, None, None);
        assert_eq!(plan.dense_bytes, 7794392436);
        assert_eq!(plan.download_bytes, 156_023_192_948);
        assert_eq!(plan.peak_bytes, 156_023_192_948 + 2 * 3_692_775_244);
        assert_eq!((plan.fits_disk, plan.fits_memory), (None, None));
        assert_eq!(plan.speed, None);
    }

    #[test]
    fn what_fits_and_what_does_not_is_said() {
        let plan = of(Some(58_000_000_000), Some(200_000_000_000), None);
        assert_eq!((plan.fits_disk, plan.fits_memory), (Some(true), Some(true)));
        // 58.0 GB less 7.79 dense, 1.2 for others and the reserve of 2 GiB, in experts of 13.37 MB.
        assert_eq!(
            plan.slots,
            (58_000_000_000 - plan.dense_bytes - 1_200_000_000 - (2 << 30)) / 13_369_344
        );
        assert_eq!(plan.memory_note, None);
        let small = of(Some(6_000_000_000), Some(163_000_000_000), Some(RATES));
        assert_eq!(
            (small.fits_disk, small.fits_memory),
            (Some(false), Some(false))
        );
        assert!(small.memory_note.unwrap().contains("needs at least"));
        // What cannot be loaded has no speed.
        assert_eq!(small.speed, None);
    }

    const RATES: Rates = Rates {
        memory: 96e9,
        disk: 6.3e9,
        at: 1_796_000_000_000,
    };

    #[test]
    fn the_speed_lies_between_reading_after_and_beside_computing() {
        // A third of the experts: three of four uses are at hand. 7.87 GB and 3.449 GB from memory at 96 GB/s are 118 ms,
        // 0.862 GB from the disk at 6.3 GB/s are 137 ms.
        let speed = speed(RATES, 7_870_000_000, 0.33);
        assert!((speed.hit_rate - 0.75).abs() < 1e-9);
        assert!((speed.most - 1.0 / 0.1369).abs() < 0.01, "{}", speed.most);
        assert!(
            (speed.least - 1.0 / (0.1179 / 0.8 + 0.1369)).abs() < 0.01,
            "{}",
            speed.least
        );
    }

    #[test]
    fn a_larger_cache_is_hit_more_often_and_all_of_it_always() {
        let mut before = -1.0;
        for share in 0..=100 {
            let rate = hit_rate(f64::from(share) / 100.0);
            assert!(rate > before, "{share} %");
            before = rate;
        }
        assert!((hit_rate(0.0)).abs() < 1e-9 && (hit_rate(1.0) - 1.0).abs() < 1e-9);
        // Halfway between 0.25 and 0.33.
        assert!((hit_rate(0.29) - 0.705).abs() < 1e-9);
    }

    #[test]
    fn measuring_leaves_nothing_behind_and_says_why_it_cannot() {
        let folder = tempfile::tempdir().unwrap();
        // The folder for models may not be there yet. Not every file system that tests run on has direct reads.
        match disk_rate(&folder.path().join("models")) {
            Ok(rate) => assert!(rate.is_finite() && rate > 0.0),
            Err(error) => assert!(
                error
                    .to_string()
                    .contains(&folder.path().display().to_string())
            ),
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
