//! Which guesses about what a layer will take are worth reading.
//!
//! While a layer waits for nothing, the disk can read what comes next. A layer's router, applied to a state from before its time, names its
//! experts in order of score; how early that state is ([`Sight`]) decides how often it is right. How often a guess about an expert that is
//! not in memory comes true is measured for each sight and rank, whether it was read or not, so that they turn themselves off and on
//! by what the text does. The bytes of guesses that did not come true are bounded by a part of the bytes read on demand.

/// The state that guesses about a layer go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// What the experts of the layer before read: early, and right less often.
    LayerBefore,
    /// The streams as the layer gets them, before its attention.
    BeforeAttention,
    /// The same for a chunk of a prompt, of which most experts are taken by many tokens.
    Chunk,
}

/// A guess: what it goes by, and how likely it is beside others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// The expert with this rank among those of one token.
    Rank(Sight, usize),
    /// An expert that so many tokens of a chunk would take.
    Tokens(u32),
}

/// A rank is read ahead while at least this share of its guesses come true ...
const WORTH: f64 = 0.5;
/// ... and for a chunk, which is to read each expert once and no other: what is not guessed comes a moment later.
const WORTH_FOR_CHUNK: f64 = 0.95;
/// Guesses for a chunk are told apart by the tokens that would take the expert: one, two or three, more. How many come true at first.
const BY_TOKENS: [f64; 3] = [0.6, 0.96, 1.0];
/// Most useless bytes, as a part of the bytes read on demand.
const MOST_WASTE: f64 = 0.2;
/// How much of the past stays with each guess of a rank.
const MEMORY: f64 = 0.98;
/// Guesses a rank must have been judged by; before, it is given the benefit of the doubt.
const BELIEF: f64 = 4.0;
/// How many come true at first.
const AT_FIRST: f64 = 0.6;
/// How much of the account of bytes stays with each token.
const ACCOUNT: f64 = 0.998;
/// While no rank is worth reading, guesses are made in one step of so many, to see whether that has changed.
const LOOK_AGAIN: u64 = 16;

/// How one rank does.
#[derive(Clone, Copy)]
struct Rank {
    guesses: f64,
    came_true: f64,
}

impl Rank {
    fn new(precision: f64) -> Self {
        Self {
            guesses: BELIEF,
            came_true: precision * BELIEF,
        }
    }

    fn precision(self) -> f64 {
        self.came_true / self.guesses
    }
}

/// Judges guesses.
pub struct Prefetch {
    on: bool,
    taken: usize,
    /// Those of the two sights of one token, then those by tokens.
    ranks: Vec<Rank>,
    /// Guesses that concern what was not in memory: page, rank, whether it was read ahead.
    open: Vec<(u32, usize, bool)>,
    steps: u64,
    /// Of steps of one token, and of those of more: the thousands of a prompt do not pay for guesses in the answer to it.
    accounts: [Account; 2],
}

/// Experts that were read, fading.
#[derive(Clone, Copy, Default)]
struct Account {
    demanded: f64,
    wasted: f64,
}

impl Account {
    /// Whether so many more may turn out wrong.
    fn allows(self, more: f64) -> bool {
        self.wasted + more <= MOST_WASTE * self.demanded
    }
}

impl Prefetch {
    /// For models that take so many experts.
    pub fn new(taken: usize, on: bool) -> Self {
        let mut ranks = vec![Rank::new(AT_FIRST); 2 * taken];
        ranks.extend(BY_TOKENS.map(Rank::new));
        Self {
            on,
            taken,
            ranks,
            open: Vec::with_capacity(taken),
            steps: 0,
            accounts: [Account::default(); 2],
        }
    }

    /// A step begins.
    pub fn advance(&mut self) {
        self.steps += 1;
        for account in &mut self.accounts {
            account.demanded *= ACCOUNT;
            account.wasted *= ACCOUNT;
        }
        self.open.clear();
    }

    /// Experts a token takes.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether guesses of this sight pay for this token.
    pub fn wants(&self, sight: Sight) -> bool {
        let (ranks, worth) = match sight {
            Sight::LayerBefore => (&self.ranks[..self.taken], WORTH),
            Sight::BeforeAttention => (&self.ranks[self.taken..2 * self.taken], WORTH),
            Sight::Chunk => (&self.ranks[2 * self.taken..], WORTH_FOR_CHUNK),
        };
        let account = self.accounts[usize::from(sight == Sight::Chunk)];
        let pays = ranks.iter().any(|rank| {
            let precision = rank.precision();
            precision >= worth && account.allows(1.0 - precision)
        });
        self.on && (pays || self.steps.is_multiple_of(LOOK_AGAIN))
    }

    /// Where the account of guesses of this kind is, if there is one, and from which share on they are worth reading.
    fn rank(&self, guess: Guess) -> Option<(usize, f64)> {
        match guess {
            Guess::Rank(_, rank) if rank >= self.taken => None,
            Guess::Rank(Sight::LayerBefore, rank) => Some((rank, WORTH)),
            Guess::Rank(_, rank) => Some((self.taken + rank, WORTH)),
            Guess::Tokens(tokens) => {
                let class = (tokens.max(1).ilog2() as usize).min(BY_TOKENS.len() - 1);
                Some((2 * self.taken + class, WORTH_FOR_CHUNK))
            }
        }
    }

    /// A guess that a layer needs `page`, which is not in memory. Says whether to read it.
    pub fn consider(&mut self, page: u32, guess: Guess) -> bool {
        let Some((rank, worth)) = self.rank(guess) else {
            return false;
        };
        let precision = self.ranks[rank].precision();
        // What is open may turn out wrong as well.
        let account = self.account(rank);
        let open = self.open.iter();
        let doubt: f64 = open
            .filter(|(_, rank, read)| *read && self.account(*rank) == account)
            .map(|(_, rank, _)| 1.0 - self.ranks[*rank].precision())
            .sum();
        let allowed = self.accounts[account].allows(doubt + (1.0 - precision));
        let read = precision >= worth && allowed;
        self.open.push((page, rank, read));
        read
    }

    /// Which account the guesses of a rank are on.
    fn account(&self, rank: usize) -> usize {
        usize::from(rank >= 2 * self.taken)
    }

    /// A guess that was to be read was not after all.
    pub fn withdrawn(&mut self, page: u32) {
        for guess in self.open.iter_mut().filter(|guess| guess.0 == page) {
            guess.2 = false;
        }
    }

    /// A layer came: says of a page whether it was taken, or nothing if the page is of another layer.
    pub fn settle(&mut self, took: impl Fn(u32) -> Option<bool>) {
        for (page, rank, read) in self.open.drain(..) {
            let Some(right) = took(page) else { continue };
            let record = &mut self.ranks[rank];
            record.guesses = record.guesses * MEMORY + 1.0;
            record.came_true = record.came_true * MEMORY + f64::from(u8::from(right));
            if read && !right {
                self.accounts[usize::from(rank >= 2 * self.taken)].wasted += 1.0;
            }
        }
    }

    /// So many experts were read on demand, for one token or for more.
    pub fn demanded(&mut self, experts: usize, together: bool) {
        self.accounts[usize::from(together)].demanded += experts as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Guess = Guess::Rank(Sight::BeforeAttention, 0);

    /// Runs `tokens` of one layer each, which misses four experts: rank 0 is right as `right` says; returns how many guesses were read and how many
    /// were wrong.
    fn run(
        prefetch: &mut Prefetch,
        tokens: usize,
        right: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        run_missing(prefetch, 4, tokens, right)
    }

    fn run_missing(
        prefetch: &mut Prefetch,
        missing: usize,
        tokens: usize,
        right: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let (mut read, mut wrong) = (0, 0);
        for token in 0..tokens {
            prefetch.advance();
            prefetch.demanded(missing, false);
            if prefetch.wants(Sight::BeforeAttention) && prefetch.consider(1, FIRST) {
                read += 1;
                wrong += usize::from(!right(token));
            }
            prefetch.settle(|_| Some(right(token)));
        }
        (read, wrong)
    }

    #[test]
    fn good_guesses_are_read_and_bad_ones_are_not() {
        let mut prefetch = Prefetch::new(2, true);
        let (read, _) = run(&mut prefetch, 500, |_| true);
        assert!(read > 480, "{read}");
        // It turns itself off where guesses stop coming true ...
        run(&mut prefetch, 200, |_| false);
        let (read, _) = run(&mut prefetch, 500, |_| false);
        assert_eq!(read, 0);
        // ... and on again when they come true again. Rank 1 was never judged; it keeps the prediction alive.
        run(&mut prefetch, 3000, |_| true);
        let (read, _) = run(&mut prefetch, 100, |_| true);
        assert_eq!(read, 100);
    }

    #[test]
    fn waste_stays_within_its_part_of_the_demand() {
        // Two of three come true: worth reading, and a third of them is more than may be wasted.
        let mut prefetch = Prefetch::new(1, true);
        let (_, wrong) = run_missing(&mut prefetch, 100, 3000, |token| token % 3 != 2);
        assert_eq!(wrong, 1000);
        let mut prefetch = Prefetch::new(1, true);
        let (_, wrong) = run_missing(&mut prefetch, 1, 3000, |token| token % 3 != 2);
        assert!((500..=600).contains(&wrong), "{wrong}");
        let mut prefetch = Prefetch::new(1, true);
        prefetch.advance();
        assert!(!prefetch.consider(1, FIRST), "nothing was demanded yet");
        // A prompt misses thousands, which pay for guesses about prompts.
        prefetch.demanded(5000, true);
        assert!(!prefetch.consider(1, FIRST) && !prefetch.wants(Sight::BeforeAttention));
        assert!(prefetch.consider(2, Guess::Tokens(300)) && prefetch.wants(Sight::Chunk));
    }

    #[test]
    fn while_nothing_pays_it_looks_again_now_and_then() {
        let mut prefetch = Prefetch::new(1, true);
        run(&mut prefetch, 400, |_| false);
        let looks = (0..160)
            .filter(|_| {
                prefetch.advance();
                prefetch.wants(Sight::BeforeAttention)
            })
            .count();
        assert_eq!(looks, 10);
        let mut off = Prefetch::new(1, false);
        off.advance();
        assert!(!off.wants(Sight::BeforeAttention));
    }

    #[test]
    fn each_sight_is_judged_by_itself() {
        let mut prefetch = Prefetch::new(2, true);
        for token in 0..400 {
            prefetch.advance();
            prefetch.demanded(8, false);
            prefetch.demanded(8, true);
            // Early guesses never come true, late ones always; of an expert that many tokens of a chunk would take, nine in ten.
            prefetch.consider(1, Guess::Rank(Sight::LayerBefore, 0));
            prefetch.consider(2, Guess::Rank(Sight::LayerBefore, 1));
            prefetch.consider(3, FIRST);
            prefetch.consider(4, Guess::Tokens(4));
            prefetch.consider(5, Guess::Tokens(300));
            prefetch.settle(|page| Some(page == 3 || (page > 3 && token % 10 > 0)));
        }
        prefetch.advance();
        assert!(!prefetch.wants(Sight::LayerBefore));
        assert!(prefetch.wants(Sight::BeforeAttention));
        // Nine in ten is much for one token, and not enough for a chunk.
        assert!(!prefetch.consider(5, Guess::Tokens(5)));
        let precision = |guess| {
            let (rank, _) = prefetch.rank(guess).unwrap_or_default();
            prefetch.ranks[rank].precision()
        };
        assert!((precision(Guess::Tokens(4)) - 0.9).abs() < 0.05);
        assert_eq!(precision(Guess::Tokens(2)), BY_TOKENS[1]);
        assert!(prefetch.consider(3, FIRST));
        assert!(!prefetch.consider(3, Guess::Rank(Sight::BeforeAttention, 2)));
    }
}
