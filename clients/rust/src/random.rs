//! Random numbers from the operating system.

/// A random key of 32 hexadecimal digits.
pub(crate) fn key() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A random number from 0 to 1.
pub(crate) fn share() -> f64 {
    f64::from(getrandom::u32().expect("the operating system gives random bytes")) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printable_and_never_the_same() {
        let keys: std::collections::HashSet<String> = (0..100).map(|_| key()).collect();
        assert_eq!(keys.len(), 100);
        assert!(keys.iter().all(|key| key.len() == 32 && key.chars().all(|digit| digit.is_ascii_hexdigit())));
    }

    #[test]
    fn shares_lie_between_nothing_and_the_whole() {
        assert!((0..100).map(|_| share()).all(|share| (0.0..=1.0).contains(&share)));
    }
}
