//! Clock, percentiles, memory and pinning: the tools every part of the harness measures with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

/// Time stamps cheap enough to put around a call of a few hundred nanoseconds.
///
/// On x86-64 the time stamp counter with a load fence on both sides; elsewhere the monotonic clock.
#[derive(Clone, Copy)]
pub struct Clock {
    ns_per_tick: f64,
    overhead_ticks: u64,
}

impl Clock {
    /// Calibrates against the monotonic clock; takes about 50 ms.
    pub fn calibrate() -> Self {
        let start = (Instant::now(), Self::ticks());
        while start.0.elapsed().as_millis() < 50 {}
        let ticks = Self::ticks() - start.1;
        let ns_per_tick = start.0.elapsed().as_nanos() as f64 / ticks as f64;
        let mut empty: Vec<u64> = (0..10_001)
            .map(|_| {
                let before = Self::ticks();
                Self::ticks() - before
            })
            .collect();
        empty.sort_unstable();
        Self { ns_per_tick, overhead_ticks: empty[empty.len() / 2] }
    }

    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    pub fn ticks() -> u64 {
        // SAFETY: both instructions exist on every x86-64 processor and touch no memory.
        unsafe {
            std::arch::x86_64::_mm_lfence();
            let ticks = std::arch::x86_64::_rdtsc();
            std::arch::x86_64::_mm_lfence();
            ticks
        }
    }

    #[inline(always)]
    #[cfg(not(target_arch = "x86_64"))]
    pub fn ticks() -> u64 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    /// The ticks of this many seconds, such that [`ns`](Self::ns) gives them back.
    pub fn ticks_of(&self, seconds: f64) -> u64 {
        (seconds * 1e9 / self.ns_per_tick) as u64 + self.overhead_ticks
    }

    /// Nanoseconds between two stamps, less what taking the stamps costs.
    pub fn ns(&self, ticks: u64) -> f64 {
        ticks.saturating_sub(self.overhead_ticks) as f64 * self.ns_per_tick
    }
}

/// Durations of single calls, in ticks.
#[derive(Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    #[inline(always)]
    pub fn push(&mut self, ticks: u64) {
        self.0.push(ticks);
    }

    pub fn reserve(&mut self, additional: usize) {
        self.0.reserve(additional);
    }

    /// Bytes that the samples themselves take.
    pub fn bytes(&self) -> i64 {
        (self.0.capacity() * size_of::<u64>()) as i64
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn append(&mut self, mut other: Samples) {
        self.0.append(&mut other.0);
    }

    /// Of each call, the median of its times in all rounds, which were appended one after the
    /// other: that leaves out the pauses of the machine, which seldom meet a call twice.
    pub fn medians(&self, rounds: usize) -> Samples {
        let calls = self.0.len() / rounds.max(1);
        let median = |call| {
            let mut times: Vec<u64> =
                (0..rounds).map(|round| self.0[round * calls + call]).collect();
            times.sort_unstable();
            times[rounds / 2]
        };
        Samples((0..calls).map(median).collect())
    }

    /// Percentiles, mean and maximum in nanoseconds, each divided by `per` (requests per call).
    pub fn summary(&mut self, clock: &Clock, per: f64) -> Summary {
        self.0.sort_unstable();
        let at = |share: f64| {
            let Some(last) = self.0.len().checked_sub(1) else {
                return 0.0;
            };
            clock.ns(self.0[(last as f64 * share).round() as usize]) / per
        };
        let total: f64 = self.0.iter().map(|&ticks| clock.ns(ticks)).sum();
        Summary {
            calls: self.0.len(),
            mean: total / per / self.0.len().max(1) as f64,
            p50: at(0.50),
            p90: at(0.90),
            p99: at(0.99),
            p999: at(0.999),
            worst: at(1.0),
            total_s: total / 1e9,
        }
    }
}

/// What [`Samples::summary`] found; nanoseconds, except `total_s`.
#[derive(Clone, Copy, Default)]
pub struct Summary {
    pub calls: usize,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub worst: f64,
    pub total_s: f64,
}

impl Summary {
    pub fn json(&self) -> Value {
        json!({
            "calls": self.calls, "mean_ns": round1(self.mean), "p50_ns": round1(self.p50),
            "p90_ns": round1(self.p90), "p99_ns": round1(self.p99), "p999_ns": round1(self.p999),
            "worst_ns": round1(self.worst),
        })
    }
}

/// One decimal is all that a nanosecond figure carries.
pub fn round1(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Memory of this process, in bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    pub resident: i64,
    pub heap: i64,
}

impl Memory {
    /// Returns freed pages to the system first, so that what was temporary is not counted.
    pub fn now() -> Self {
        // SAFETY: plain C calls without pointers.
        let (page, heap) = unsafe {
            libc::malloc_trim(0);
            let info = libc::mallinfo2();
            (libc::sysconf(libc::_SC_PAGESIZE), info.uordblks + info.hblkhd)
        };
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has /proc");
        let pages: i64 = statm
            .split_whitespace()
            .nth(1)
            .and_then(|field| field.parse().ok())
            .expect("statm: second field is the resident page count");
        Self { resident: pages * page, heap: heap as i64 }
    }

    /// What was added since `before`: resident pages, and bytes live in the allocator.
    pub fn since(before: Memory) -> Memory {
        let now = Self::now();
        Memory { resident: now.resident - before.resident, heap: now.heap - before.heap }
    }
}

/// Fills the caches with something else, so that every round starts equally cold.
pub struct Polluter(Vec<u64>);

impl Polluter {
    pub fn new() -> Self {
        Self(vec![1; 256 << 17])
    }

    pub fn run(&mut self) {
        for line in self.0.chunks_exact_mut(8) {
            line[0] = line[0].wrapping_mul(3);
        }
        std::hint::black_box(&self.0);
    }
}

static ASK: AtomicBool = AtomicBool::new(false);

/// From now on, [`quiet`] waits for a line on the standard input.
pub fn ask_before_measuring() {
    ASK.store(true, Ordering::Relaxed);
}

/// Measures something. Whoever shares the machine can be asked to hold still for as long as it
/// takes: building the indexes takes minutes, measuring them seconds.
pub fn quiet<T>(what: &str, measure: impl FnOnce() -> T) -> T {
    if !ASK.load(Ordering::Relaxed) {
        return measure();
    }
    eprintln!("ready: {what}");
    std::io::stdin().read_line(&mut String::new()).expect("standard input is readable");
    let found = measure();
    eprintln!("done: {what}");
    found
}

/// Pins the calling thread to one processor (modulo the number there is).
pub fn pin(core: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: the set is zeroed and outlives the call; pid 0 is the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core % cores, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Makes `0..count`, two at a time on two processors, and uses each one alone, in order.
pub fn in_pairs<T: Send, U>(
    count: usize,
    make: impl Fn(usize) -> T + Sync,
    mut use_one: impl FnMut(usize, T) -> U,
) -> Vec<U> {
    let mut out = Vec::with_capacity(count);
    for first in (0..count).step_by(2) {
        let (one, other) = std::thread::scope(|scope| {
            let other = (first + 1 < count).then(|| {
                scope.spawn(|| {
                    pin(1);
                    make(first + 1)
                })
            });
            (make(first), other.map(|thread| thread.join().expect("no panic")))
        });
        out.push(use_one(first, one));
        out.extend(other.map(|other| use_one(first + 1, other)));
    }
    out
}

/// A small deterministic generator (splitmix64), so that every run sees the same data.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Uniform in `0..bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The finaliser of splitmix64: a bijection, so distinct inputs stay distinct.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
