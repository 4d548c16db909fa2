//! The row scan: which words of two cache lines hold a fingerprint? One file a backend, all of one
//! signature; the scalar one always exists and is what the others are compared with. This folder
//! is the only place of the crate with unsafe code.
//!
//! A backend is chosen once, when a consumer is made. The vector ones are tokens that can be had
//! only where the processor has their instructions, so that holding one is the proof.
//!
//! # Loads
//! The words are `AtomicU64` that lane writers store to at any time. The scalar backend reads them
//! with relaxed atomic loads. The vector ones read them with a load instruction in an
//! inline-assembly block, which the compiler takes as opaque: it does what relaxed loads of each of
//! its aligned words would do, in some order, and no Rust reference to plain memory ever exists.
//! That an aligned word within a vector load is read whole is what x86-64 and AArch64 processors
//! do. The block is neither `pure` nor `nomem`, so it is not merged, left out or moved across
//! fences.

#[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
mod avx512;
#[cfg(all(
    target_arch = "aarch64",
    target_endian = "little",
    not(any(ckf_loom, ckf_force_scalar, miri))
))]
mod neon;
mod pages;
mod prefetch;
mod scalar;

use crate::row::Line;

pub(crate) use pages::advise_huge;
pub(crate) use prefetch::prefetch;

/// A row scan.
pub(crate) trait Scan: Copy {
    /// Bit `i`: word `i` of `first` or word `i` of `second` holds the fingerprint, which is not 0.
    fn either(self, first: &Line, second: &Line, fingerprint: u16) -> u64;

    /// Runs an operation in code that may use the backend's instructions.
    fn enter<O: Operation>(self, operation: O);
}

/// What is compiled once for each backend.
pub(crate) trait Operation {
    /// Does it. Implementations are always inlined, into code with the backend's instructions.
    fn run<S: Scan>(self, scan: S);
}

/// The instructions of the row scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Portable; always available.
    Scalar,
    /// x86-64 with AVX2 and BMI: half a cache line an instruction.
    Avx2,
    /// x86-64 with AVX-512BW: a cache line an instruction.
    Avx512,
    /// AArch64: a quarter of a cache line an instruction.
    Neon,
}

impl Backend {
    /// All, the preferred ones last.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Neon, Self::Avx2, Self::Avx512];

    /// The best that this processor has.
    pub fn best() -> Self {
        Self::ALL.into_iter().rfind(|backend| backend.is_available()).unwrap_or(Self::Scalar)
    }

    /// Whether this processor and this build have it. The cfgs `ckf_force_scalar` and `ckf_loom`
    /// leave only [`Scalar`](Self::Scalar).
    pub fn is_available(self) -> bool {
        Chosen::new(self).is_some()
    }
}

/// A backend that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen {
    Scalar(scalar::Scalar),
    #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
    Avx2(avx2::Avx2),
    #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
    Avx512(avx512::Avx512),
    #[cfg(all(
        target_arch = "aarch64",
        target_endian = "little",
        not(any(ckf_loom, ckf_force_scalar, miri))
    ))]
    Neon(neon::Neon),
}

impl Chosen {
    /// The backend, if processor and build have it.
    pub(crate) fn new(backend: Backend) -> Option<Self> {
        match backend {
            Backend::Scalar => Some(Self::Scalar(scalar::Scalar)),
            #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
            Backend::Avx2 => avx2::Avx2::new().map(Self::Avx2),
            #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
            Backend::Avx512 => avx512::Avx512::new().map(Self::Avx512),
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                not(any(ckf_loom, ckf_force_scalar, miri))
            ))]
            Backend::Neon => neon::Neon::new().map(Self::Neon),
            #[allow(unreachable_patterns, reason = "which ones are left depends on the target")]
            _ => None,
        }
    }

    /// Its public name.
    pub(crate) fn backend(self) -> Backend {
        match self {
            Self::Scalar(_) => Backend::Scalar,
            #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
            Self::Avx2(_) => Backend::Avx2,
            #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
            Self::Avx512(_) => Backend::Avx512,
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                not(any(ckf_loom, ckf_force_scalar, miri))
            ))]
            Self::Neon(_) => Backend::Neon,
        }
    }

    /// Runs an operation with it.
    #[inline]
    pub(crate) fn enter<O: Operation>(self, operation: O) {
        match self {
            Self::Scalar(scan) => scan.enter(operation),
            #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
            Self::Avx2(scan) => scan.enter(operation),
            #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, ckf_force_scalar, miri))))]
            Self::Avx512(scan) => scan.enter(operation),
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                not(any(ckf_loom, ckf_force_scalar, miri))
            ))]
            Self::Neon(scan) => scan.enter(operation),
        }
    }
}

#[cfg(all(test, not(ckf_loom)))]
mod tests {
    use super::*;
    use crate::sync::Ordering;
    use ckf_core::{BucketImage, Fingerprint};
    use proptest::prelude::*;

    struct Either<'a>(&'a Line, &'a Line, u16, &'a mut u64);

    impl Operation for Either<'_> {
        #[inline(always)]
        fn run<S: Scan>(self, scan: S) {
            *self.3 = scan.either(self.0, self.1, self.2);
        }
    }

    fn line(words: [u64; 8]) -> Line {
        let line = Line::default();
        line.0.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        line
    }

    /// Slots near the one that is looked for, and at the values where word tricks go wrong.
    fn word() -> impl Strategy<Value = u64> {
        let slot = prop_oneof![Just(0u16), 1..4u16, 0x7FFE..0x8002u16, Just(0xFFFF), any::<u16>()];
        prop::array::uniform4(slot)
            .prop_map(|slots| slots.iter().fold(0, |word, &slot| word << 16 | u64::from(slot)))
    }

    proptest! {
        #[test]
        fn every_backend_answers_as_a_look_at_each_word(
            first in prop::array::uniform8(word()),
            second in prop::array::uniform8(word()),
            bits in prop_oneof![1..4u16, 0x7FFE..0x8002u16, Just(0xFFFF), 1..=u16::MAX],
        ) {
            let fingerprint = Fingerprint::new(bits).unwrap();
            let holds = |word| BucketImage::new(word).contains(fingerprint);
            let expected = (0..8).fold(0, |mask, i| {
                mask | u64::from(holds(first[i]) || holds(second[i])) << i
            });
            for backend in Backend::ALL {
                let Some(chosen) = Chosen::new(backend) else { continue };
                prop_assert_eq!(chosen.backend(), backend);
                let mut found = 0;
                chosen.enter(Either(&line(first), &line(second), bits, &mut found));
                prop_assert_eq!(found, expected, "{:?}", backend);
            }
        }
    }

    #[test]
    fn the_best_backend_is_available() {
        assert!(Backend::best().is_available());
        assert!(Backend::Scalar.is_available());
        if cfg!(any(ckf_force_scalar, miri)) {
            assert_eq!(Backend::best(), Backend::Scalar);
        }
    }
}
