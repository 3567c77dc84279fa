//! The retry policy of the two services, from `service_config.json`, which all clients share.
//!
//! Its separate policy for methods with short deadlines is for gRPC libraries that start a pause even if it ends after
//! the deadline. This client skips such a pause, so these calls end in time without it.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use tonic::Code;

use crate::random;

/// A retry policy as defined by gRPC.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RetryPolicy {
    max_attempts: u32,
    initial_backoff: Duration,
    max_backoff: Duration,
    multiplier: f64,
    codes: Vec<String>,
}

impl RetryPolicy {
    /// The policy of every call that is retried.
    pub(crate) fn shared() -> &'static Self {
        static POLICY: LazyLock<RetryPolicy> = LazyLock::new(|| {
            RetryPolicy::parse(include_str!("../service_config.json")).expect("service_config.json has a retry policy")
        });
        &POLICY
    }

    /// One attempt, for `SessionAppend`, which the config excludes from the policy of the services.
    pub(crate) fn none() -> Self {
        Self { max_attempts: 1, ..Self::shared().clone() }
    }

    /// Reads the first retry policy of a service config, which is that of the services; None if there is none.
    fn parse(config: &str) -> Option<Self> {
        let config: Value = serde_json::from_str(config).ok()?;
        let policy = &config["methodConfig"][0]["retryPolicy"];
        let codes = policy["retryableStatusCodes"].as_array()?;
        Some(Self {
            max_attempts: u32::try_from(policy["maxAttempts"].as_u64()?).ok()?,
            initial_backoff: duration(&policy["initialBackoff"])?,
            max_backoff: duration(&policy["maxBackoff"])?,
            multiplier: policy["backoffMultiplier"].as_f64()?,
            codes: codes.iter().map(|code| code.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        })
    }

    /// Whether a call with this error is retried.
    pub(crate) fn retries(&self, code: Code) -> bool {
        self.codes.iter().any(|retried| retried == crate::error::name_of(code))
    }

    /// The pauses before the second attempt, the third, and so on, with a random jitter of 20 %, so that the clients of
    /// a restarted daemon do not all reconnect at the same moment.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = Duration> {
        let mut next = self.initial_backoff;
        (1..self.max_attempts).map(move |_| {
            let pause = next.min(self.max_backoff);
            next = pause.mul_f64(self.multiplier);
            pause.mul_f64(0.8 + 0.4 * random::share())
        })
    }
}

/// Parses a duration in proto3 JSON, for example `0.2s`.
fn duration(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_str()?.strip_suffix('s')?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_config_is_read_in_full() {
        let wanted = RetryPolicy {
            max_attempts: 5,
            initial_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_millis(350),
            multiplier: 2.0,
            codes: vec!["UNAVAILABLE".to_owned()],
        };
        assert_eq!(*RetryPolicy::shared(), wanted);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<Duration> = RetryPolicy::shared().pauses().collect();
        assert_eq!(pauses.len(), 4);
        for (pause, middle) in pauses.iter().zip([0.2, 0.35, 0.35, 0.35]) {
            let share = pause.as_secs_f64() / middle;
            assert!((0.79..=1.21).contains(&share), "{pauses:?}");
        }
    }

    #[test]
    fn without_retries_there_is_no_pause() {
        assert_eq!(RetryPolicy::none().pauses().count(), 0);
    }

    #[test]
    fn only_the_codes_of_the_config_are_tried_again() {
        let policy = RetryPolicy::shared();
        assert!(policy.retries(Code::Unavailable));
        for code in [Code::DeadlineExceeded, Code::ResourceExhausted, Code::Cancelled, Code::Unknown, Code::Aborted] {
            assert!(!policy.retries(code), "{code:?}");
        }
    }

    #[test]
    fn a_config_without_a_policy_is_none() {
        for config in ["", "{}", r#"{"methodConfig": [{"retryPolicy": {"maxAttempts": 5}}]}"#] {
            assert_eq!(RetryPolicy::parse(config), None, "{config}");
        }
    }
}
