//! One shape for counters by reason.

/// Declares counters by reason: a field for each, `count`, `total`, and sums over several owners.
/// For the crates of this family only.
#[doc(hidden)]
#[macro_export]
macro_rules! counts {
    ($(#[$doc:meta])* $name:ident of $reason:ident {
        $($(#[$field_doc:meta])* $field:ident: $pattern:pat,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            pub(crate) fn count(&mut self, reason: $reason) {
                match reason {
                    $($pattern => self.$field += 1,)*
                }
            }

            /// All of them.
            pub fn total(&self) -> u64 {
                0 $(+ self.$field)*
            }
        }

        impl ::core::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}
