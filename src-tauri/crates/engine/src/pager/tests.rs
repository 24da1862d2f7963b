//! The pager over a small container whose disk does what a test wants.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastar_fst::Container;
use fastar_testkit::{TestModel, Tiny, tiny};

use super::disk::{Disk, Source};
use super::*;

const LAYERS: usize = 4;
const EXPERTS: usize = 8;
const SIZES: Sizes = Sizes {
    layers: LAYERS,
    experts: EXPERTS,
    taken: 2,
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file that can fail, stop and remember what was read.
#[derive(Clone)]
struct Bench {
    container: Arc<Container>,
    disk: Arc<Disk>,
    /// Pages whose reads fail with EIO.
    broken: Arc<Mutex<Vec<usize>>>,
    /// Pages whose reads end in a panic.
    buggy: Arc<Mutex<Vec<usize>>>,
    /// Pages whose bytes come back changed.
    damaged: Arc<Mutex<Vec<usize>>>,
    /// Reads wait while this is set.
    held: Arc<AtomicBool>,
    /// Pages in the order in which their reads began.
    order: Arc<Mutex<Vec<usize>>>,
    reading: Arc<AtomicUsize>,
}

impl Source for Bench {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let records = self.container.records();
        let stride = records.offset(0, 1) - records.offset(0, 0);
        let page = ((offset - records.offset(0, 0)) / stride) as usize;
        if (offset - records.offset(0, 0)).is_multiple_of(stride) {
            self.order.lock().unwrap().push(page);
        }
        self.reading.fetch_add(1, Ordering::SeqCst);
        let since = Instant::now();
        // Not for ever: a test that fails meanwhile ends the pager, which waits for this.
        while self.held.load(Ordering::SeqCst) && since.elapsed() < 2 * PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.reading.fetch_sub(1, Ordering::SeqCst);
        let is_buggy = self.buggy.lock().unwrap().contains(&page);
        assert!(!is_buggy, "a bug in reading");
        if self.broken.lock().unwrap().contains(&page) {
            return Err(io::Error::from_raw_os_error(5));
        }
        // Short reads, always.
        let half = (buffer.len() / 2).next_multiple_of(512).min(buffer.len());
        let n = self.disk.read_at(&mut buffer[..half], offset)?;
        if self.damaged.lock().unwrap().contains(&page) {
            buffer[n / 2] ^= 1;
        }
        Ok(n)
    }
}

impl Bench {
    fn new() -> (Self, TestModel) {
        let model = tiny(&Tiny::default()).convert();
        let container = Container::open(&model.path()).unwrap();
        let disk = Disk::new(container.file().unwrap()).unwrap();
        let bench = Self {
            container: Arc::new(container),
            disk: Arc::new(disk),
            broken: Arc::default(),
            buggy: Arc::default(),
            damaged: Arc::default(),
            held: Arc::default(),
            order: Arc::default(),
            reading: Arc::default(),
        };
        (bench, model)
    }

    fn pager(&self, slots: usize) -> Pager {
        let records = self.container.records().clone();
        Pager::new(records, Box::new(self.clone()), SIZES, slots, true).unwrap()
    }

    fn expert(&self, layer: usize, expert: u32) -> Vec<u8> {
        let record = self.container.expert(layer, expert as usize);
        record.unwrap().into_owned()
    }

    fn order(&self) -> Vec<usize> {
        std::mem::take(&mut *self.order.lock().unwrap())
    }

    /// Waits until `what` is so.
    fn until(&self, what: impl Fn() -> bool) {
        let since = Instant::now();
        while !what() {
            assert!(since.elapsed() < PATIENCE, "it never came to be");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn once(experts: &[u32]) -> Vec<(u32, u32)> {
    experts.iter().map(|e| (*e, 1)).collect()
}

/// Takes experts in ascending order, as a prompt does, and compares their bytes.
fn take(bench: &Bench, pager: &Pager, layer: usize, experts: &[u32]) -> Result<()> {
    let (wanted, cancel) = (once(experts), Cancel::default());
    let mut pages = pager.request(layer, &wanted, &cancel)?;
    for expert in experts {
        assert!(pages.get(*expert)? == bench.expert(layer, *expert));
        pages.release(*expert);
    }
    Ok(())
}

/// Takes them as they arrive, as an answer does.
fn take_arriving(bench: &Bench, pager: &Pager, layer: usize, experts: &[u32]) -> Result<Vec<u32>> {
    let (wanted, cancel) = (once(experts), Cancel::default());
    let mut pages = pager.request(layer, &wanted, &cancel)?;
    let mut order = Vec::new();
    let mut from = 0;
    while pages.arrived(&mut order)? {
        for expert in &order[from..] {
            assert!(pages.bytes(*expert).unwrap() == bench.expert(layer, *expert));
        }
        from = order.len();
    }
    Ok(order)
}

#[test]
fn every_expert_has_its_bytes_whatever_the_number_of_slots() {
    let (bench, _model) = Bench::new();
    for slots in [0usize, 1, 2, 3, 5, 8, 20, 32, 1000] {
        let pager = bench.pager(slots);
        assert_eq!(pager.statistics().slots, slots.clamp(2, 32) as u64);
        for round in 0..6 {
            pager.step(1);
            for layer in 0..LAYERS {
                // A whole layer, more than there are slots, and a pair.
                take(&bench, &pager, layer, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
                let pair = [round, round + 2];
                let mut order = take_arriving(&bench, &pager, layer, &pair).unwrap();
                order.sort_unstable();
                assert_eq!(order, pair);
            }
        }
        let numbers = pager.statistics();
        assert_eq!(numbers.hits + numbers.misses + numbers.late, 6 * 4 * 10);
        assert_eq!(numbers.filled, numbers.slots);
        if slots >= 32 {
            assert_eq!((numbers.misses, numbers.hits), (32, 6 * 40 - 32));
            assert_eq!(
                numbers.demand_bytes,
                32 * bench.container.records().bytes() as u64
            );
        }
    }
}

#[test]
fn a_prompt_reads_each_missing_expert_once() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(6);
    pager.step(1);
    take(&bench, &pager, 0, &[1, 6]).unwrap();
    bench.order();
    pager.step(100);
    take(&bench, &pager, 0, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    let mut read = bench.order();
    // Eight threads start in any order what was queued in one.
    read.sort_unstable();
    assert_eq!(read, [0, 2, 3, 4, 5, 7]);
    let last = pager.statistics().last;
    assert_eq!((last.tokens, last.hits, last.misses), (100, 2, 6));
    assert_eq!(
        last.demand_bytes,
        6 * bench.container.records().bytes() as u64
    );
}

#[test]
fn what_is_there_is_handed_out_while_the_rest_is_read() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(8);
    pager.step(1);
    take(&bench, &pager, 2, &[3, 5]).unwrap();
    bench.held.store(true, Ordering::SeqCst);
    let (wanted, cancel) = (once(&[1, 3, 4, 5]), Cancel::default());
    let mut pages = pager.request(2, &wanted, &cancel).unwrap();
    let mut order = Vec::new();
    assert!(pages.arrived(&mut order).unwrap());
    assert_eq!(order, [3, 5]);
    bench.held.store(false, Ordering::SeqCst);
    while pages.arrived(&mut order).unwrap() {}
    assert_eq!(order.len(), 4);
    drop(pages);
    assert!(pager.statistics().waited > Duration::ZERO);
    assert_eq!(pager.statistics().layers[2].hits, 2);
    assert_eq!(pager.statistics().layers[1].hits, 0);
}

#[test]
fn a_disk_that_fails_is_named_and_the_next_request_works_when_it_does() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(3);
    for arriving in [false, true] {
        bench.broken.lock().unwrap().push(EXPERTS + 5);
        let result = match arriving {
            false => take(&bench, &pager, 1, &[2, 5, 6]),
            true => take_arriving(&bench, &pager, 1, &[2, 5, 6]).map(|_| ()),
        };
        let error = result.unwrap_err().to_string();
        assert!(error.contains("expert 5 of layer 1"), "{error}");
        assert!(error.contains("model.fst: Input/output error."), "{error}");
        bench.broken.lock().unwrap().clear();
        take(&bench, &pager, 1, &[2, 5, 6]).unwrap();
        take(&bench, &pager, 2, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    }
}

#[test]
fn a_reader_that_panics_leaves_nobody_waiting_and_reads_on() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(3);
    // More than there are readers.
    for _ in 0..20 {
        // It is used most, so it leaves only when others have been used as often.
        let is_there = || {
            pager
                .hottest()
                .iter()
                .any(|(p, _)| *p as usize == EXPERTS + 5)
        };
        while is_there() {
            take(&bench, &pager, 2, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        }
        bench.buggy.lock().unwrap().push(EXPERTS + 5);
        let error = take(&bench, &pager, 1, &[2, 5, 6]).unwrap_err().to_string();
        assert!(error.contains("expert 5 of layer 1"), "{error}");
        bench.buggy.lock().unwrap().clear();
        take(&bench, &pager, 1, &[2, 5, 6]).unwrap();
    }
}

#[test]
fn damaged_bytes_are_never_used() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(4);
    bench.damaged.lock().unwrap().push(2 * EXPERTS + 7);
    let error = take(&bench, &pager, 2, &[6, 7]).unwrap_err().to_string();
    assert!(error.contains("checksum of expert 7 of layer 2"), "{error}");
    bench.damaged.lock().unwrap().clear();
    take(&bench, &pager, 2, &[6, 7]).unwrap();
}

#[test]
fn a_file_that_is_cut_short_is_an_error() {
    let (bench, model) = Bench::new();
    let pager = bench.pager(4);
    take(&bench, &pager, 0, &[0, 1]).unwrap();
    let end = bench.container.records().offset(3, 6);
    let file = std::fs::File::options()
        .write(true)
        .open(model.path())
        .unwrap();
    file.set_len(end + 100).unwrap();
    let cancel = Cancel::default();
    let wanted = once(&[5, 6]);
    let mut pages = pager.request(3, &wanted, &cancel).unwrap();
    assert!(pages.get(5).is_ok());
    let error = pages.get(6).unwrap_err().to_string();
    assert!(error.contains("expert 6 of layer 3"), "{error}");
    assert!(error.contains("the file ends before it"), "{error}");
}

#[test]
fn a_stop_is_obeyed_while_the_disk_hangs() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(4);
    bench.held.store(true, Ordering::SeqCst);
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let wanted = once(&[0, 1]);
            let mut pages = pager.request(0, &wanted, &cancel)?;
            pages.get(0).map(|_| ())
        });
        // Another one waits for its turn.
        bench.until(|| bench.reading.load(Ordering::SeqCst) == 2);
        let second = scope.spawn(|| pager.request(1, &[(0, 1)], &cancel).map(|_| ()));
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
        assert!(matches!(
            second.join().unwrap(),
            Ok(()) | Err(Error::Cancelled)
        ));
    });
    bench.held.store(false, Ordering::SeqCst);
    take(&bench, &pager, 0, &[0, 1]).unwrap();
}

#[test]
fn many_at_once_get_through_with_the_fewest_slots() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(2);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (bench, pager) = (&bench, &pager);
            scope.spawn(move || {
                for round in 0..50 {
                    pager.step(1);
                    let layer = (round as usize + thread as usize) % LAYERS;
                    let next = (layer + 1) % LAYERS;
                    let likely = [(round + thread) % 8, (round + 3) % 8];
                    pager.guess(next, Sight::LayerBefore, &likely);
                    pager.expect(next, &once(&[round % 4, 5]), round % 3 == 0);
                    let pair = [(round * thread) % 4, 4 + (round + thread) % 4];
                    take_arriving(bench, pager, layer, &pair).unwrap();
                }
            });
        }
    });
}

#[test]
fn what_is_certain_is_read_ahead_and_counted_as_useful() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(32);
    pager.step(1);
    pager.foresee(1, [2, 3].into_iter());
    pager.foresee(2, [4].into_iter());
    bench.until(|| pager.statistics().ahead_bytes == 3 * bench.container.records().bytes() as u64);
    assert_eq!(pager.statistics().useful, 0);
    take(&bench, &pager, 1, &[2, 3]).unwrap();
    let numbers = pager.statistics();
    assert_eq!(
        (numbers.hits, numbers.misses, numbers.useful, numbers.wasted),
        (2, 0, 2, 0)
    );
    // Never used, and then it leaves.
    let small = bench.pager(2);
    small.step(1);
    small.foresee(3, [7].into_iter());
    bench.until(|| small.statistics().filled == 1 && small.hottest().len() == 1);
    take(&bench, &small, 0, &[0, 1]).unwrap();
    assert_eq!(
        (small.statistics().useful, small.statistics().wasted),
        (0, 1)
    );
}

#[test]
fn a_read_that_is_waited_for_overtakes_what_is_read_ahead() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(32);
    pager.step(1);
    bench.held.store(true, Ordering::SeqCst);
    pager.foresee(3, 0..8);
    bench.until(|| bench.order.lock().unwrap().len() == table::MOST_AHEAD);
    let cancel = Cancel::default();
    let wanted = once(&[1, 2]);
    let mut pages = pager.request(0, &wanted, &cancel).unwrap();
    bench.until(|| bench.order.lock().unwrap().len() == table::MOST_AHEAD + 2);
    bench.held.store(false, Ordering::SeqCst);
    assert!(pages.get(2).is_ok());
    drop(pages);
    let expert = bench.container.records().bytes() as u64;
    bench.until(|| pager.statistics().ahead_bytes == 8 * expert);
    let order = bench.order();
    let mut demanded = order[4..6].to_vec();
    demanded.sort_unstable();
    assert_eq!(demanded, [1, 2]);
    // Asked for while it is being read: neither read twice nor a miss.
    bench.held.store(true, Ordering::SeqCst);
    pager.step(1);
    pager.foresee(1, [6].into_iter());
    bench.until(|| bench.order.lock().unwrap().len() == 1);
    let wanted = once(&[6]);
    let mut pages = pager.request(1, &wanted, &cancel).unwrap();
    bench.held.store(false, Ordering::SeqCst);
    assert!(pages.get(6).unwrap() == bench.expert(1, 6));
    drop(pages);
    let numbers = pager.statistics();
    assert_eq!((numbers.misses, numbers.late, numbers.useful), (2, 1, 1));
    assert_eq!(bench.order(), [EXPERTS + 6]);
}

#[test]
fn a_read_that_stands_back_is_woken_when_a_layer_asks_for_it() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(32);
    let cancel = Cancel::default();
    pager.step(1);
    bench.held.store(true, Ordering::SeqCst);
    // A read that was waited for, and still is under way when its request has ended.
    let wanted = once(&[0]);
    let stopped = pager.request(0, &wanted, &cancel).unwrap();
    bench.until(|| bench.order.lock().unwrap().len() == 1);
    pager.foresee(1, [3].into_iter());
    bench.until(|| pager.shared.lock().standing_back == 1);
    drop(stopped);
    let wanted = once(&[3]);
    let mut pages = pager.request(1, &wanted, &cancel).unwrap();
    bench.until(|| bench.order.lock().unwrap().len() == 2);
    assert_eq!(bench.order(), [0, EXPERTS + 3]);
    bench.held.store(false, Ordering::SeqCst);
    assert!(pages.get(3).unwrap() == bench.expert(1, 3));
}

#[test]
fn a_guess_takes_the_place_of_what_is_coldest() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(4);
    // Much demand, so that guesses may waste something. Two experts are used again and again; the two others in slots were used once.
    for pair in 0..4 {
        take(&bench, &pager, 1, &[2 * pair, 2 * pair + 1]).unwrap();
        take(&bench, &pager, 2, &[2 * pair, 2 * pair + 1]).unwrap();
    }
    for _ in 0..20 {
        pager.step(1);
        take(&bench, &pager, 0, &[0, 1]).unwrap();
    }
    let resident = || {
        let mut pages: Vec<u32> = pager.hottest().iter().map(|(page, _)| *page).collect();
        pages.sort_unstable();
        pages
    };
    assert_eq!((resident().len(), &resident()[..2]), (4, &[0, 1][..]));
    let read = pager.statistics().misses;
    // Hot or not, and read once.
    for _ in 0..3 {
        pager.step(1);
        pager.guess(3, Sight::BeforeAttention, &[5]);
        take(&bench, &pager, 0, &[0, 1]).unwrap();
    }
    let expert = bench.container.records().bytes() as u64;
    bench.until(|| pager.statistics().ahead_bytes == expert);
    assert_eq!((resident().len(), &resident()[..2]), (4, &[0, 1][..]));
    assert_eq!(resident()[3], 3 * EXPERTS as u32 + 5);
    assert_eq!(pager.statistics().misses, read);
}

#[test]
fn what_a_chunk_takes_next_comes_meanwhile_and_stays() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(20);
    let record = bench.container.records().bytes() as u64;
    let of =
        |experts: std::ops::Range<u32>| -> Vec<(u32, u32)> { experts.map(|e| (e, 9)).collect() };
    pager.step(36);
    // Half of the 18 slots that can be spared.
    pager.expect(1, &of(0..8), true);
    bench.until(|| pager.statistics().ahead_bytes == 8 * record);
    // More goes through the other slots than they hold; what is kept stays.
    for layer in [0, 2, 3] {
        take(&bench, &pager, layer, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    }
    let before = pager.statistics();
    assert_eq!((before.misses, before.useful, before.wasted), (24, 0, 0));
    take(&bench, &pager, 1, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    let numbers = pager.statistics();
    assert_eq!((numbers.misses, numbers.useful, numbers.wasted), (24, 8, 0));
    assert_eq!(pager.shared.lock().kept(), 0);
}

#[test]
fn what_a_chunk_does_not_take_after_all_is_let_go() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(12);
    let record = bench.container.records().bytes() as u64;
    // Guesses that many tokens stand for are believed; of five slots that can be spared, all are kept.
    pager.step(36);
    pager.expect(
        1,
        &[(0, 30), (1, 30), (2, 30), (4, 30), (5, 30), (6, 30)],
        false,
    );
    bench.until(|| pager.statistics().ahead_bytes == 5 * record);
    assert_eq!(pager.shared.lock().kept(), 5);
    take(&bench, &pager, 1, &[6, 7]).unwrap();
    assert_eq!(pager.shared.lock().kept(), 0);
    // So does one who does not ask at all.
    pager.expect(2, &[(3, 30)], true);
    bench.until(|| pager.statistics().ahead_bytes == 6 * record);
    assert_eq!(pager.shared.lock().kept(), 1);
    pager.step(1);
    assert_eq!(pager.shared.lock().kept(), 0);
    // All of it leaves when others come, and was for nothing.
    for layer in [0, 3] {
        take(&bench, &pager, layer, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    }
    let numbers = pager.statistics();
    assert_eq!((numbers.useful, numbers.wasted), (0, 6));
}

#[test]
fn with_the_fewest_slots_nothing_is_kept() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(3);
    pager.step(36);
    for layer in 0..LAYERS {
        pager.expect(layer, &once(&[0, 1, 2, 3, 4, 5, 6, 7]), true);
        take(&bench, &pager, layer, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    }
    let numbers = pager.statistics();
    assert_eq!((numbers.misses, numbers.ahead_bytes), (32, 0));
}

#[test]
fn a_guess_that_fails_to_be_read_keeps_no_slot() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(20);
    bench
        .broken
        .lock()
        .unwrap()
        .extend([EXPERTS + 2, EXPERTS + 3]);
    pager.step(36);
    pager.expect(1, &once(&[2, 3, 4]), true);
    let record = bench.container.records().bytes() as u64;
    bench.until(|| {
        pager.statistics().ahead_bytes == record && bench.order.lock().unwrap().len() >= 3
    });
    bench.until(|| pager.shared.lock().ahead_reading == 0);
    assert_eq!(pager.shared.lock().kept(), 1);
    bench.broken.lock().unwrap().clear();
    take(&bench, &pager, 1, &[2, 3, 4]).unwrap();
}

#[test]
fn a_warm_start_fills_free_slots_and_evicts_nothing() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(4);
    take(&bench, &pager, 0, &[0, 1]).unwrap();
    pager.warm(&[(9, 5.0), (30, 4.0), (0, 3.5), (17, 3.0), (18, 2.0)]);
    // What is on the list and not in memory yet is among the hottest as well.
    bench.until(|| {
        let mut pages: Vec<u32> = pager.hottest().iter().map(|(page, _)| *page).collect();
        pages.sort_unstable();
        pages == [0, 1, 9, 30]
    });
    assert_eq!(
        pager.statistics().warm_bytes,
        2 * bench.container.records().bytes() as u64
    );
    assert_eq!(pager.hottest()[0].0, 9);
}

#[test]
fn what_a_warm_start_has_not_read_yet_stays_on_the_list() {
    let (bench, _model) = Bench::new();
    let pager = bench.pager(20);
    bench.held.store(true, Ordering::SeqCst);
    let list: Vec<(u32, f64)> = (0..20).map(|i| (31 - i, 40.0 - f64::from(i))).collect();
    pager.warm(&list);
    bench.until(|| bench.reading.load(Ordering::SeqCst) == table::MOST_AHEAD);
    // Those being read may fail; the others are to come.
    let pages = || -> Vec<u32> { pager.hottest().iter().map(|(page, _)| *page).collect() };
    let all: Vec<u32> = list.iter().map(|(page, _)| *page).collect();
    assert_eq!(pages(), all[table::MOST_AHEAD..]);
    bench.held.store(false, Ordering::SeqCst);
    bench.until(|| pages() == all);
}
