//! Which processors to compute on: one for each physical core this process may use, as many as its CPU quota pays for.
//!
//! Two threads on one core share its arithmetic units and its places for memory on the way, so siblings are left out. Of a hybrid processor the fast
//! cores come first; the slow ones are used as well, because whoever is done first takes over from the others ([`team`](crate::team)). A quota below the
//! number of cores would stop all threads for part of every period when it is used up; fewer threads that are never stopped are faster.
//!
//! On Linux this is read from the system's files under `/sys` and `/proc`; elsewhere the standard library's count is all there is to go by. What could not be
//! measured: hybrid processors, and more than two cores.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::control_groups;

/// What this process may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Processors {
    /// One processor of each physical core, the fastest cores first. Empty where the system does not tell.
    pub cores: Vec<usize>,
    /// All processors, siblings included; at least one.
    pub allowed: usize,
    /// How many processors' time the control groups grant, where they limit it.
    pub quota: Option<f64>,
}

impl Processors {
    /// Those of this process.
    pub fn find() -> Self {
        let fallback = || std::thread::available_parallelism().map_or(1, |n| n.get());
        match affinity() {
            Some(allowed) if !allowed.is_empty() => Self::read(Path::new("/"), &allowed),
            _ => Self {
                cores: Vec::new(),
                allowed: fallback(),
                quota: None,
            },
        }
    }

    /// From the files below `root`, for a process that may run on the processors `allowed`.
    pub fn read(root: &Path, allowed: &[usize]) -> Self {
        let cpu = root.join("sys/devices/system/cpu");
        // By package and core; files that are missing make every processor a core.
        let mut cores: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut sorted = allowed.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        for processor in &sorted {
            let topology = cpu.join(format!("cpu{processor}/topology"));
            let siblings = text(&topology.join("thread_siblings_list"))
                .or_else(|| text(&topology.join("core_cpus_list")))
                .and_then(|t| list(&t))
                .filter(|s| s.contains(processor));
            cores
                .entry(siblings.unwrap_or_else(|| vec![*processor]))
                .or_insert(*processor);
        }
        let mut cores: Vec<usize> = cores.into_values().collect();
        let speeds: BTreeMap<usize, u64> = speeds(root, &cores);
        // Stable: cores of one speed stay in the order of their numbers.
        cores.sort_unstable();
        cores.sort_by_key(|c| std::cmp::Reverse(speeds.get(c).copied().unwrap_or(0)));
        Self {
            cores,
            allowed: sorted.len().max(1),
            quota: quota(root),
        }
    }

    /// How many threads are fastest, as far as is known.
    pub fn threads(&self) -> usize {
        let cores = match self.cores.len() {
            0 => self.allowed,
            n => n,
        };
        self.affordable(cores)
    }

    /// How many of `threads` threads the quota lets run all the time; at least one.
    pub fn affordable(&self, threads: usize) -> usize {
        match self.quota {
            Some(quota) => threads.min(quota as usize).max(1),
            None => threads,
        }
    }

    /// The processor on which the thread of this number stays: one core for each, if there are as many threads as cores. Fewer are moved by the system as it
    /// likes, and so are those under a quota: others are at work here, and whoever else counts from the first core would share it while the rest is idle.
    pub fn place(&self, thread: usize, threads: usize) -> Option<usize> {
        let all = threads == self.cores.len() && self.quota.is_none();
        all.then(|| self.cores.get(thread).copied())?
    }
}

/// Keeps the calling thread on one processor. Where that is refused it stays free, which costs speed and nothing else.
pub fn stay_on(processor: usize) {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_setaffinity};
        if processor < CpuSet::MAX_CPU {
            let mut one = CpuSet::new();
            one.set(processor);
            let _ = sched_setaffinity(None, &one);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = processor;
}

/// Processors this thread may run on; none where the system does not tell.
fn affinity() -> Option<Vec<usize>> {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_getaffinity};
        let set = sched_getaffinity(None).ok()?;
        Some((0..CpuSet::MAX_CPU).filter(|p| set.is_set(*p)).collect())
    }
    #[cfg(not(target_os = "linux"))]
    None
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

/// Processors of a list as the kernel writes it: `0-3,8`. None if it is not one.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= 1 << 16 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// A number for each core that is larger for faster kinds of cores; the same for all where there is one kind, or nothing is known.
fn speeds(root: &Path, cores: &[usize]) -> BTreeMap<usize, u64> {
    let devices = root.join("sys/devices");
    // Intel's hybrid processors list their slow cores.
    let slow = text(&devices.join("cpu_atom/cpus")).and_then(|t| list(&t));
    if let Some(slow) = slow {
        return cores
            .iter()
            .map(|c| (*c, u64::from(!slow.contains(c))))
            .collect();
    }
    let of = |file: &str| -> BTreeMap<usize, u64> {
        let read = |c: &usize| {
            let path = devices.join(format!("system/cpu/cpu{c}/{file}"));
            Some((*c, text(&path)?.parse::<u64>().ok()?))
        };
        cores.iter().filter_map(read).collect()
    };
    let mut values = of("cpu_capacity");
    if values.len() < cores.len() {
        values = of("cpufreq/cpuinfo_max_freq");
    }
    let (Some(most), true) = (values.values().max().copied(), values.len() == cores.len()) else {
        return BTreeMap::new();
    };
    // Good and bad pieces of one kind differ by some percent; kinds differ by a quarter and more.
    values
        .into_iter()
        .map(|(c, v)| (c, u64::from(4 * v > 3 * most)))
        .collect()
}

/// The smallest quota of the process's control groups, in processors.
fn quota(root: &Path) -> Option<f64> {
    control_groups::of_this_process(root, "cpu")
        .iter()
        .filter_map(|group| match group.is_v2 {
            true => of_v2(&group.folder),
            false => of_v1(&group.folder),
        })
        .filter(|quota| *quota > 0.0)
        .min_by(f64::total_cmp)
}

/// `cpu.max`: `max 100000`, or a quota and its period.
fn of_v2(folder: &Path) -> Option<f64> {
    let text = text(&folder.join("cpu.max"))?;
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?; // "max" is no number.
    let period: f64 = words.next().unwrap_or("100000").parse().ok()?;
    (period > 0.0).then_some(quota / period)
}

/// Two files; a quota of -1 is none.
fn of_v1(folder: &Path) -> Option<f64> {
    let quota: f64 = text(&folder.join("cpu.cfs_quota_us"))?.parse().ok()?;
    let period: f64 = text(&folder.join("cpu.cfs_period_us"))?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A tree of files in a folder of its own, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let folder = format!("fastar-processors-{}-{name}", std::process::id());
            let tree = Self(std::env::temp_dir().join(folder));
            for (path, content) in files {
                tree.add(path, content);
            }
            tree
        }

        fn add(&self, path: &str, content: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn cpu(&self, processor: usize, siblings: &str) {
            let path =
                format!("sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
            self.add(&path, siblings);
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn one_processor_of_each_core_whichever_way_siblings_are_numbered() {
        let tree = Tree::new("siblings", &[]);
        for p in 0..8 {
            tree.cpu(p, &format!("{},{}\n", p % 4, p % 4 + 4));
        }
        let all: Vec<usize> = (0..8).collect();
        let found = Processors::read(&tree.0, &all);
        assert_eq!(
            (found.cores.as_slice(), found.allowed),
            (&[0, 1, 2, 3][..], 8)
        );
        assert_eq!(found.threads(), 4);
        // A cpuset of one core and the second thread of another.
        let found = Processors::read(&tree.0, &[1, 5, 6]);
        assert_eq!((found.cores.as_slice(), found.threads()), (&[1, 6][..], 2));
        assert_eq!(found.place(0, 2), Some(1));
        assert_eq!(found.place(1, 2), Some(6));
        assert_eq!(
            found.place(0, 3),
            None,
            "more threads than cores go where they like"
        );
        assert_eq!(found.place(0, 1), None, "and so do fewer");
        let quota = Some(2.0);
        let limited = Processors { quota, ..found };
        assert_eq!(
            limited.place(0, 2),
            None,
            "others have the rest of the time"
        );
        for p in 0..4 {
            tree.cpu(p, &format!("{}-{}\n", p / 2 * 2, p / 2 * 2 + 1));
        }
        assert_eq!(Processors::read(&tree.0, &[0, 1, 2, 3]).cores, [0, 2]);
    }

    #[test]
    fn with_smt_off_or_nothing_known_every_processor_is_a_core() {
        let tree = Tree::new("off", &[]);
        for p in 0..3 {
            tree.cpu(p, &format!("{p}\n"));
        }
        assert_eq!(Processors::read(&tree.0, &[0, 1, 2]).cores, [0, 1, 2]);
        let nothing = Tree::new("nothing", &[]);
        let found = Processors::read(&nothing.0, &[4, 2, 2]);
        assert_eq!(
            (found.cores.as_slice(), found.allowed, found.quota),
            (&[2, 4][..], 2, None)
        );
    }

    #[test]
    fn fast_cores_come_first_and_slow_ones_are_used_too() {
        // Two fast cores with two threads each, four slow ones, as Intel lists them.
        let tree = Tree::new("intel", &[("sys/devices/cpu_atom/cpus", "0-3\n")]);
        for p in 0..4 {
            tree.cpu(p, &format!("{p}\n"));
        }
        for p in 4..8 {
            tree.cpu(p, &format!("{}-{}\n", p / 2 * 2, p / 2 * 2 + 1));
        }
        let all: Vec<usize> = (0..8).collect();
        let found = Processors::read(&tree.0, &all);
        assert_eq!(found.cores, [4, 6, 0, 1, 2, 3]);
        // Capacities or frequencies tell kinds apart, small differences do not.
        for file in ["cpu_capacity", "cpufreq/cpuinfo_max_freq"] {
            let tree = Tree::new(&file.replace('/', "-"), &[]);
            for (p, value) in [(0, 3300), (1, 5000), (2, 3300), (3, 4800)] {
                tree.cpu(p, &format!("{p}\n"));
                tree.add(
                    &format!("sys/devices/system/cpu/cpu{p}/{file}"),
                    &format!("{value}\n"),
                );
            }
            assert_eq!(Processors::read(&tree.0, &[0, 1, 2, 3]).cores, [1, 3, 0, 2]);
        }
    }

    const V2: &str = "24 1 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn quotas_of_the_own_group_and_of_those_above_count() {
        let tree = Tree::new(
            "v2",
            &[
                ("proc/self/cgroup", "0::/a/b\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ],
        );
        let found = Processors::read(&tree.0, &[0, 1, 2, 3]);
        assert_eq!(found.quota, Some(1.5));
        // Two threads would be stopped for a quarter of the time.
        assert_eq!((found.threads(), found.affordable(9)), (1, 1));
        tree.add("sys/fs/cgroup/a/b/cpu.max", "20000 100000\n");
        let found = Processors::read(&tree.0, &[0, 1]);
        assert_eq!((found.quota, found.threads()), (Some(0.2), 1));
        tree.add("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        tree.add("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
        assert_eq!(Processors::read(&tree.0, &[0, 1, 2, 3]).threads(), 2);
    }

    #[test]
    fn version_1_has_its_own_files_and_minus_one_is_no_quota() {
        let folder = "sys/fs/cgroup/cpu,cpuacct";
        let tree = Tree::new(
            "v1",
            &[
                (
                    "proc/self/cgroup",
                    "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n",
                ),
                (
                    "proc/self/mountinfo",
                    "30 24 0:26 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
                ),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(Processors::read(&tree.0, &[0, 1, 2, 3]).threads(), 3);
        tree.add(&format!("{folder}/cpu.cfs_quota_us"), "-1\n");
        assert_eq!(Processors::read(&tree.0, &[0, 1, 2, 3]).quota, None);
    }

    #[test]
    fn files_that_make_no_sense_limit_nothing() {
        for (i, max) in ["", "max", "-5 100000", "1 0", "x y", "100000 nan"]
            .into_iter()
            .enumerate()
        {
            let tree = Tree::new(
                &format!("odd{i}"),
                &[
                    ("proc/self/cgroup", "0::/../..\nnonsense\n"),
                    ("proc/self/mountinfo", V2),
                    ("sys/fs/cgroup/cpu.max", max),
                    ("sys/devices/cpu_atom/cpus", "0-99999999\n"),
                ],
            );
            tree.cpu(0, "9-1,,x\n");
            let found = Processors::read(&tree.0, &[0, 1]);
            assert_eq!((found.quota, found.threads()), (None, 2), "{max:?}");
        }
    }

    #[test]
    fn this_process_may_use_something() {
        let found = Processors::find();
        assert!(found.threads() >= 1 && found.threads() <= found.allowed);
    }
}
