//! How much memory this process may use, and what a model makes of it.
//!
//! The machine's free memory is not the answer in a container or under a service manager: a control group may allow less, and so may any group
//! above it. [`available`] takes the smallest of all. [`plan`] is a pure function of that, of what the model needs in any case, and of
//! what the person asked for.

use std::fs;
use std::path::Path;
use std::time::Duration;

use fastar_kernels::control_groups;

/// Above this a limit means "none": version 1 of control groups says so with the largest multiple of a page.
const NO_LIMIT: u64 = 1 << 60;

/// Memory this process may still use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// How much.
    pub bytes: u64,
    /// Why not more.
    pub bound: Bound,
}

/// What sets how much memory a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The computer has no more that is free.
    Machine,
    /// A limit on its addresses, in bytes.
    Addresses(u64),
    /// A control group.
    Group {
        /// Bytes it may use in all.
        most: u64,
        /// The file that says so.
        file: &'static str,
    },
}

impl Bound {
    /// What to do where that is too little, a sentence.
    fn remedy(self, machine: &str) -> String {
        match self {
            Self::Machine => format!("{machine}."),
            Self::Addresses(most) => format!(
                "The limit on the addresses of this program is {}: raise it (`ulimit -v unlimited`) and start FaStar again.",
                size(most)
            ),
            Self::Group { most, file } => format!(
                "The control group of this program may use {}: raise that limit ({file}) and start FaStar again.",
                size(most)
            ),
        }
    }
}

/// What this process may still use: what the system has available, what every control group above it leaves, and the addresses it may still
/// have. None where nothing can be found out.
///
/// `root` is `/`; tests put a tree of files in its place.
pub fn available(root: &Path) -> Option<Available> {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = text("proc/meminfo").and_then(|meminfo| {
        let kib: u64 = field(&meminfo, "MemAvailable:")?;
        Some(Available {
            bytes: kib.checked_mul(1024)?,
            bound: Bound::Machine,
        })
    });
    let addresses = text("proc/self/limits").and_then(|limits| {
        let used = field(&text("proc/self/status")?, "VmSize:")?.checked_mul(1024)?;
        let most = addresses(&limits)?;
        Some(Available {
            bytes: most.saturating_sub(used).saturating_sub(BESIDE),
            bound: Bound::Addresses(most),
        })
    });
    let own = control_groups::of_this_process(root, "memory");
    let groups = own.iter().filter_map(|group| {
        let files = if group.is_v2 { &VERSION_2 } else { &VERSION_1 };
        files.left(&group.folder)
    });
    // Of equal ones the computer: there is no use in raising a limit.
    machine
        .into_iter()
        .chain(groups)
        .chain(addresses)
        .min_by_key(|available| available.bytes)
}

/// Addresses that are left to stacks of threads and to what the allocator reserves for each of them.
const BESIDE: u64 = 256 << 20;

/// The limit on addresses (`ulimit -v`) in `/proc/self/limits`, in bytes; none if there is no limit.
fn addresses(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Names of the files of one version of control groups.
struct Files {
    /// The smallest of them counts.
    limits: &'static [&'static str],
    usage: &'static str,
    /// In memory.stat: file pages that can be dropped.
    reclaimable: &'static str,
}

const VERSION_1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};
const VERSION_2: Files = Files {
    // Above `memory.high` the system slows the group down and takes its memory away again: a model that needs it would crawl.
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: "inactive_file",
};

impl Files {
    /// What a group leaves; none if it sets no limit.
    fn left(&self, group: &Path) -> Option<Available> {
        let text = |name: &str| fs::read_to_string(group.join(name)).ok();
        // "max" is no number.
        let limit = |name: &&'static str| Some((text(name)?.trim().parse().ok()?, *name));
        let (limit, file): (u64, _) = self.limits.iter().filter_map(limit).min()?;
        if limit >= NO_LIMIT {
            return None;
        }
        let usage: u64 = text(self.usage)
            .and_then(|t| t.trim().parse().ok())
            .unwrap_or(0);
        let reclaimable = text("memory.stat")
            .and_then(|stat| field(&stat, self.reclaimable))
            .unwrap_or(0);
        Some(Available {
            bytes: limit.saturating_sub(usage.saturating_sub(reclaimable)),
            bound: Bound::Group { most: limit, file },
        })
    }
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

/// What a model needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Weights that every token reads: always in memory.
    pub dense: u64,
    /// What is remembered of conversations.
    pub conversations: u64,
    /// Buffers, the tokenizer, the program.
    pub work: u64,
    /// One expert.
    pub slot: u64,
    /// Experts there are.
    pub experts: usize,
    /// Experts without which no token can be computed.
    pub fewest: usize,
}

/// What a model gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Experts that fit.
    pub slots: usize,
    /// Experts there are.
    pub experts: usize,
    /// Bytes for them.
    pub cache_bytes: u64,
    /// Bytes of the weights that are always in memory.
    pub dense_bytes: u64,
    /// Tokens of a prompt that are read at a time, see [`chunk`].
    pub chunk: usize,
    /// What a person should know: that what they asked for is not what they get, and why.
    pub note: Option<String>,
}

/// Left to the rest of the system: a sixteenth of what is available, but not without bound.
fn reserve(available: u64) -> u64 {
    (available / 16).min(2 << 30)
}

/// How many tokens of a prompt are read at a time.
///
/// A chunk of some hundred tokens takes nearly all experts of a layer, whatever its length, so the bytes that come from the disk and from memory
/// for a prompt fall with the number of its chunks. They are long enough that an expert is multiplied with about [`TOGETHER`] tokens,
/// and short enough that buffers of `token_bytes` for each token stay within a small part of `room`, and that a stop is obeyed.
pub fn chunk(experts: usize, taken: usize, token_bytes: u64, room: Option<u64>) -> usize {
    let wanted = (TOGETHER * experts / taken.max(1)).next_power_of_two();
    let mut chunk = wanted.clamp(SHORTEST, LONGEST);
    while chunk > SHORTEST && room.is_some_and(|room| chunk as u64 * token_bytes > room / 32) {
        chunk /= 2;
    }
    chunk
}

/// Tokens with which an expert's weights are multiplied at once, on average, if there are that many.
const TOGETHER: usize = 24;
/// Shortest and longest chunk of a prompt.
const SHORTEST: usize = 128;
const LONGEST: usize = 1024;

/// How many experts are kept in memory. `asked` is a hard cap, but for the fewest that work.
pub fn plan(available: Option<Available>, need: &Need, asked: Option<u64>) -> Plan {
    let bound = available.map_or(Bound::Machine, |available| available.bound);
    let available = available.map(|available| available.bytes);
    let slot = need.slot.max(1);
    let others = need.dense + need.conversations + need.work;
    // Where nothing is known, everything is allowed: the person can ask for less.
    let fits = available.map_or(u64::MAX, |available| {
        available
            .saturating_sub(others)
            .saturating_sub(reserve(available))
    });
    let wanted = asked.unwrap_or(u64::MAX);
    let count = |bytes: u64| usize::try_from(bytes / slot).unwrap_or(usize::MAX);
    let slots = count(wanted.min(fits)).clamp(need.fewest, need.experts.max(need.fewest));
    let cache_bytes = slots as u64 * slot;
    let note = if count(fits) < need.fewest {
        let asked = asked.filter(|asked| count(*asked) > need.fewest);
        let instead = asked.map_or(String::new(), |asked| {
            format!(", not the {} asked for", size(asked))
        });
        let (have, least) = (available.unwrap_or(0), others + cache_bytes);
        let smallest = format!(
            "the expert cache has its smallest size, {}{instead}",
            size(cache_bytes)
        );
        Some(if least > have {
            format!(
                "The model needs about {} of memory in all and {} are available, so {smallest}, and it may end early. {}",
                size(least),
                size(have),
                bound.remedy("Close other programs")
            )
        } else {
            format!(
                "Of {} of memory that are available, {} are for other things than experts and the rest is left to the system, so {smallest}, and answers will be slow. {}",
                size(have),
                size(others),
                bound.remedy("Close other programs")
            )
        })
    } else if count(wanted) < need.fewest {
        Some(format!(
            "An expert cache of {wanted} bytes is too small to compute a single token; it was raised to {cache_bytes} bytes, which hold {} experts.",
            need.fewest
        ))
    } else if asked.is_some_and(|asked| asked > fits) && slots < need.experts {
        Some(format!(
            "An expert cache of {} does not fit into the {} of memory that are available; it was reduced to {}.",
            size(wanted),
            size(available.unwrap_or(0)),
            size(cache_bytes)
        ))
    } else {
        None
    };
    Plan {
        slots,
        experts: need.experts,
        cache_bytes,
        dense_bytes: need.dense,
        chunk: 0,
        note,
    }
}

/// Why a model cannot be loaded at all, if what it cannot do without is more than there is. The system would end this program, or others, rather
/// than refuse the memory.
pub fn refusal(available: Option<Available>, need: &Need) -> Option<String> {
    let Available {
        bytes: available,
        bound,
    } = available?;
    let experts = need.fewest as u64 * need.slot;
    let least = need.dense.saturating_add(experts);
    (least > available).then(|| {
        format!(
            "This model needs at least {} of memory: {} for weights that every token reads and {} for the experts of one token in one layer. Of that, {} are available. {}",
            size(least),
            size(need.dense),
            size(experts),
            size(available),
            bound.remedy("Close other programs, or use a computer with more memory")
        )
    })
}

/// What a cache of some size would be.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// What the model would get.
    pub plan: Plan,
    /// The smallest cache that works, in bytes.
    pub fewest_bytes: u64,
    /// The largest one that fits now.
    pub most_bytes: u64,
    /// One for every expert.
    pub all_bytes: u64,
    /// How fast it would be; none before enough was measured.
    pub speed: Option<Speed>,
}

/// How fast answers would be written: an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Tokens a second.
    pub tokens_per_second: f64,
    /// Share of the experts asked for that would be in memory, from 0 to 1.
    pub hit_rate: f64,
}

/// What was measured of a loaded model while it computed tokens alone.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Tokens.
    pub tokens: u64,
    /// Time for them, ...
    pub time: Duration,
    /// ... and of that, time in which the computation waited for experts.
    pub waited: Duration,
    /// Experts that were not in memory when they were asked for.
    pub missed: u64,
    /// Experts a token asks for in all layers.
    pub taken: usize,
    /// Slots there were.
    pub slots: usize,
}

/// Fewer tokens than this say nothing.
const ENOUGH_TOKENS: u64 = 16;

/// How fast answers would be written with so many slots, from what was measured and how hot the experts are (hottest first).
///
/// A token costs what it cost to compute, and for each expert that is not in memory the wait there was for one. How many those are goes
/// with the share of the uses that fall on experts too cold for a slot: the measured misses times that share with the new number of
/// slots over that with the old one. So it is exact where nothing changes, and an estimate elsewhere: heat knows the last texts only,
/// and reads do not get faster or slower by their number. None where too little was measured.
pub fn predict(heat: &[f64], measured: &Measured, slots: usize) -> Option<Speed> {
    let total: f64 = heat.iter().sum();
    if measured.tokens < ENOUGH_TOKENS || !(total.is_finite() && total > 0.0) {
        return None;
    }
    let cold = |slots: usize| -> f64 { heat.iter().skip(slots).sum::<f64>() / total };
    let tokens = measured.tokens as f64;
    let compute = measured.time.saturating_sub(measured.waited).as_secs_f64() / tokens;
    let missed = measured.missed as f64 / tokens;
    let before = cold(measured.slots);
    let misses = if slots >= heat.len() {
        0.0
    } else if before > 0.0 {
        missed * cold(slots) / before
    } else if slots >= measured.slots {
        missed
    } else {
        missed.max(measured.taken as f64 * cold(slots))
    };
    let misses = misses.min(measured.taken as f64);
    let wait = match measured.missed {
        _ if misses == 0.0 => 0.0,
        // How long a read takes was never seen.
        0 => return None,
        n => misses * measured.waited.as_secs_f64() / n as f64,
    };
    let seconds = compute + wait;
    (seconds > 0.0).then(|| Speed {
        tokens_per_second: 1.0 / seconds,
        hit_rate: 1.0 - misses / measured.taken.max(1) as f64,
    })
}

impl Plan {
    /// What the cache became, for people.
    pub fn sentence(&self) -> String {
        let held = if self.slots == self.experts {
            format!("all {} experts", self.experts)
        } else {
            format!("{} of {} experts", self.slots, self.experts)
        };
        format!(
            "Expert cache: {} for {held}; {} of other weights stay in memory.",
            size(self.cache_bytes),
            size(self.dense_bytes)
        )
    }
}

/// Bytes for people, with three digits.
fn size(bytes: u64) -> String {
    fastar_fst::size(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const MIB: u64 = 1 << 20;

    fn bytes(root: &Path) -> Option<u64> {
        available(root).map(|available| available.bytes)
    }

    fn free(mib: u64) -> Option<Available> {
        Some(Available {
            bytes: mib * MIB,
            bound: Bound::Machine,
        })
    }

    #[test]
    fn chunks_grow_with_the_experts_and_shrink_with_the_room() {
        const GIB: u64 = 1 << 30;
        // Flash: 6 of 256 experts, about 0.6 MB for a token; 24 x 256 / 6 = 1024.
        assert_eq!(chunk(256, 6, 600_000, None), 1024);
        assert_eq!(chunk(256, 6, 600_000, Some(48 * GIB)), 1024);
        // 1024 x 0.6 MB are more than 12 GiB / 32 = 403 MB, 512 are not.
        assert_eq!(chunk(256, 6, 600_000, Some(12 * GIB)), 512);
        assert_eq!(chunk(256, 6, 600_000, Some(0)), 128);
        assert_eq!(chunk(32, 6, 600_000, None), 128);
        // 24 x 64 / 6 = 256.
        assert_eq!(chunk(64, 6, 600_000, None), 256);
        assert_eq!(chunk(8, 2, 1, None), 128);
        assert_eq!(chunk(100_000, 1, 1, None), 1024);
    }

    /// A tree of files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree:          100000 kB\nMemAvailable:   4194304 kB\n",
    );

    /// Where the trees of groups are mounted, of either version.
    const MOUNTS: (&str, &str) = (
        "proc/self/mountinfo",
        "24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
         30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    );

    #[test]
    fn without_groups_it_is_what_the_machine_has() {
        assert_eq!(bytes(tree(&[MEMINFO]).path()), Some(4096 * MIB));
        assert_eq!(bytes(tree(&[]).path()), None);
        let broken = tree(&[
            ("proc/meminfo", "MemAvailable: lots\n"),
            ("proc/self/cgroup", "\n0\n0::\n"),
        ]);
        assert_eq!(bytes(broken.path()), None);
    }

    #[test]
    fn a_limit_on_addresses_counts_with_what_is_used_of_it() {
        let with = |limit: &str| {
            let limits = format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max open files            1024                 524288               files     \n\
                 Max address space         {limit:<20} unlimited            bytes     \n"
            );
            let status = ("proc/self/status", "Name:\tx\nVmSize:\t  524288 kB\n");
            let files = [MEMINFO, status, ("proc/self/limits", &limits)];
            bytes(tree(&files).path())
        };
        assert_eq!(with("unlimited"), Some(4096 * MIB));
        assert_eq!(with("2147483648"), Some((2048 - 512 - 256) * MIB));
        // More than the machine has is no limit, and what is used up leaves nothing.
        assert_eq!(with("8589934592"), Some(4096 * MIB));
        assert_eq!(with("1000"), Some(0));
    }

    #[test]
    fn version_2_counts_the_tightest_of_a_group_and_all_above_it() {
        let own = ("proc/self/cgroup", "0::/user.slice/app.scope/inner\n");
        let group = "sys/fs/cgroup/user.slice/app.scope";
        let files = [
            MEMINFO,
            MOUNTS,
            own,
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
            (
                "sys/fs/cgroup/user.slice/app.scope/memory.max",
                "536870912\n",
            ),
            (
                "sys/fs/cgroup/user.slice/app.scope/memory.current",
                "209715200\n",
            ),
            (
                "sys/fs/cgroup/user.slice/app.scope/memory.stat",
                "anon 1\ninactive_file 104857600\nactive_file 5\n",
            ),
            (
                "sys/fs/cgroup/user.slice/app.scope/inner/memory.max",
                "max\n",
            ),
        ];
        let root = tree(&files);
        // 512 MiB, of which 200 are in use and 100 of those can be dropped.
        assert_eq!(bytes(root.path()), Some(412 * MIB));
        fs::write(root.path().join(group).join("inner/memory.max"), "1048576").unwrap();
        assert_eq!(bytes(root.path()), Some(MIB));
        // More than the machine has.
        fs::write(root.path().join(group).join("inner/memory.max"), "max").unwrap();
        fs::write(root.path().join(group).join("memory.max"), "99999999999999").unwrap();
        assert_eq!(bytes(root.path()), Some(4096 * MIB));
        // Where the group is slowed down counts as where it ends, in any group above as well.
        for (at, high, left) in [
            (group, "314572800\n", 200),
            ("sys/fs/cgroup/user.slice", "157286400\n", 150),
            ("sys/fs/cgroup/user.slice", "max\n", 200),
            (group, "max\n", 4096),
            (group, "0\n", 0),
        ] {
            fs::write(root.path().join(at).join("memory.high"), high).unwrap();
            assert_eq!(bytes(root.path()), Some(left * MIB), "{at}: {high}");
        }
    }

    #[test]
    fn version_1_and_mixed_hierarchies_count() {
        let own = (
            "proc/self/cgroup",
            "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/elsewhere\n",
        );
        let limit = "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes";
        let usage = "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes";
        let root = tree(&[
            MEMINFO,
            MOUNTS,
            own,
            (limit, "268435456\n"),
            (usage, "1048576\n"),
        ]);
        assert_eq!(bytes(root.path()), Some(255 * MIB));
        // The largest number means none.
        fs::write(root.path().join(limit), "9223372036854771712\n").unwrap();
        assert_eq!(bytes(root.path()), Some(4096 * MIB));
        // The parent, and the root of the mount for a container whose path is that of the host.
        let above = "sys/fs/cgroup/memory/docker/memory.limit_in_bytes";
        fs::write(root.path().join(above), "134217728\n").unwrap();
        assert_eq!(bytes(root.path()), Some(128 * MIB));
        let inside = tree(&[
            MEMINFO,
            MOUNTS,
            own,
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864"),
        ]);
        assert_eq!(bytes(inside.path()), Some(64 * MIB));
        // Version 2 beside version 1.
        let both = tree(&[
            MEMINFO,
            MOUNTS,
            own,
            ("sys/fs/cgroup/unified/elsewhere/memory.max", "33554432"),
        ]);
        assert_eq!(bytes(both.path()), Some(32 * MIB));
    }

    #[test]
    fn what_can_never_fit_is_refused_with_the_numbers() {
        // 1000 MiB of weights and 6 experts of 10.
        let at = |mib: u64| refusal(free(mib), &NEED);
        assert_eq!(at(1060), None);
        let told = at(1059).unwrap();
        for number in ["1.1 GB", "1.0 GB", "62.9 MB"] {
            assert!(told.contains(number), "{number}: {told}");
        }
        assert_eq!(refusal(None, &NEED), None);
    }

    #[test]
    fn what_sets_the_bound_is_what_a_person_is_told_to_change() {
        let limits = "Max address space         1433600000           unlimited            bytes\n";
        let status = "Name:\tx\nVmSize:\t  524288 kB\n";
        let group = "sys/fs/cgroup/app";
        let root = tree(&[
            MEMINFO,
            MOUNTS,
            ("proc/self/cgroup", "0::/app\n"),
            ("proc/self/limits", limits),
            ("proc/self/status", status),
            ("sys/fs/cgroup/app/memory.max", "max"),
        ]);
        let told = || {
            let bound = available(root.path());
            // The same of what cannot be loaded, and of what can be loaded with fewest experts only.
            let small = Need {
                dense: 0,
                slot: MIB,
                fewest: 1,
                ..NEED
            };
            let refused = refusal(
                bound,
                &Need {
                    dense: 1 << 40,
                    ..NEED
                },
            )
            .unwrap();
            let most = bound.unwrap().bytes;
            let notes = [most, most - most / 20].map(|work| {
                plan(
                    bound,
                    &Need {
                        work,
                        conversations: 0,
                        ..small
                    },
                    None,
                )
                .note
                .unwrap()
            });
            [refused, notes[0].clone(), notes[1].clone()]
        };
        for sentence in told() {
            assert!(
                sentence.ends_with(
                    " The limit on the addresses of this program is 1.4 GB: raise it (`ulimit -v unlimited`) and start FaStar again."
                ),
                "{sentence}"
            );
            assert!(!sentence.contains("other programs"), "{sentence}");
        }
        for file in ["memory.max", "memory.high"] {
            fs::write(root.path().join(group).join(file), "500000000\n").unwrap();
            for sentence in told() {
                let end = format!(
                    " The control group of this program may use 500 MB: raise that limit ({file}) and start FaStar again."
                );
                assert!(sentence.ends_with(&end), "{sentence}");
            }
            fs::write(root.path().join(group).join(file), "max\n").unwrap();
        }
        fs::write(root.path().join("proc/self/limits"), "").unwrap();
        for sentence in told() {
            assert!(sentence.contains(" Close other programs"), "{sentence}");
        }
    }

    const NEED: Need = Need {
        dense: 1000 * MIB,
        conversations: 100 * MIB,
        work: 100 * MIB,
        slot: 10 * MIB,
        experts: 300,
        fewest: 6,
    };

    fn planned(available_mib: u64, asked: Option<u64>) -> Plan {
        plan(free(available_mib), &NEED, asked)
    }

    #[test]
    fn the_cache_gets_what_the_rest_leaves() {
        // A sixteenth of 3200 is the system's: 3200 - 1200 - 200 leaves 1800.
        assert_eq!(planned(3200, None).slots, 180);
        assert_eq!(planned(3200, None).cache_bytes, 1800 * MIB);
        assert_eq!(planned(3200, None).note, None);
        assert_eq!(planned(100_000, None).slots, 300);
        assert_eq!(plan(None, &NEED, None).slots, 300);
        // 1200 and 60 MiB are more than there are, and they are not.
        let tight = planned(1250, None);
        assert_eq!(tight.slots, 6);
        let told = tight.note.unwrap();
        assert!(
            told.contains("needs about 1.3 GB of memory in all and 1.3 GB"),
            "{told}"
        );
        let narrow = planned(1270, Some(500 * MIB));
        assert_eq!(narrow.slots, 6);
        let told = narrow.note.unwrap();
        for part in [
            "1.3 GB",
            "1.3 GB are for other things",
            "62.9 MB, not the 524 MB asked for",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        // What was asked for is what it has anyway.
        let told = planned(1270, Some(60 * MIB)).note.unwrap();
        assert!(!told.contains("asked for"), "{told}");
    }

    #[test]
    fn what_is_asked_for_is_a_hard_cap() {
        assert_eq!(planned(3200, Some(125 * MIB)).slots, 12);
        assert_eq!(planned(3200, Some(125 * MIB)).note, None);
        for asked in [0, 1, NEED.slot, 6 * NEED.slot - 1] {
            let raised = planned(3200, Some(asked));
            assert_eq!(raised.slots, 6, "{asked}");
            assert!(raised.note.unwrap().contains("was raised to"), "{asked}");
        }
        assert_eq!(planned(3200, Some(6 * NEED.slot)).note, None);
        let reduced = planned(3200, Some(2500 * MIB));
        assert_eq!(reduced.slots, 180);
        assert!(reduced.note.unwrap().contains("was reduced to"));
        assert_eq!(planned(100_000, Some(u64::MAX)).slots, 300);
    }

    #[test]
    fn the_speed_is_that_of_computing_and_of_waiting_for_what_is_cold() {
        // Four experts, used 4, 3, 2 and 1 times in ten; 20 tokens of 5 experts each, 100 ms of computing and 10 ms for each of 2 misses a token.
        let heat = [4.0, 3.0, 2.0, 1.0];
        let measured = Measured {
            tokens: 20,
            time: Duration::from_millis(20 * 120),
            waited: Duration::from_millis(20 * 20),
            missed: 40,
            taken: 5,
            slots: 2,
        };
        let of = |slots| predict(&heat, &measured, slots).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        // As it was: 3 of 10 uses are cold.
        close(of(2).tokens_per_second, 1.0 / 0.120);
        close(of(2).hit_rate, 0.6);
        // One more: 1 of 10 is, so a third of the misses stays. All of them: none.
        close(of(3).tokens_per_second, 1.0 / (0.100 + 0.020 / 3.0));
        close(of(4).tokens_per_second, 10.0);
        close(of(4).hit_rate, 1.0);
        // One fewer: twice as many. None: never more than all.
        close(of(1).tokens_per_second, 1.0 / 0.140);
        close(of(0).hit_rate, 0.0);
        close(of(0).tokens_per_second, 1.0 / 0.150);
        // Too little to say anything.
        let few = Measured {
            tokens: 15,
            ..measured
        };
        assert_eq!(predict(&heat, &few, 2), None);
        assert_eq!(predict(&[0.0; 4], &measured, 2), None);
        let never_waited = Measured {
            missed: 0,
            waited: Duration::ZERO,
            ..measured
        };
        assert_eq!(predict(&heat, &never_waited, 2).unwrap().hit_rate, 1.0);
        let all_fit = Measured {
            slots: 4,
            ..never_waited
        };
        assert_eq!(predict(&heat, &all_fit, 2), None);
    }

    #[test]
    fn this_machine_says_something() {
        if cfg!(target_os = "linux") {
            assert!(bytes(Path::new("/")).unwrap() > 0);
        }
    }
}
