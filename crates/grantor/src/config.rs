//! The section `[grantor.policy]` as written; its comments are the schema's text. What follows from it: [`Policy`](crate::Policy).

use crate::answer::{Decision, FailSafe};
use crate::error::PolicyError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who may send how much: a script, and what it is held to.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySection {
    /// A policy that comes with Tidemill: `"allow-list"`, `"deny-list"`, `"source-authentication"`, `"aimd"`, `"as-reputation"`, `"web"`,
    /// `"tcp-services"`. Each begins with a page about itself.
    pub name: Option<String>,
    /// A script of your own instead (Luau); relative to the configuration file.
    pub file: Option<String>,
    /// What the script asks for with `parameter`. One that it does not ask for is an error.
    pub parameters: BTreeMap<String, Parameter>,
    /// MiB that each worker's script may occupy, its prefix tables and expiring maps not counted; three quarters of that when it has loaded. 4 to 4096.
    pub memory_mib: u32,
    /// Steps (calls, and turns of loops) that the script may take for one question. 100 to 10,000,000.
    pub steps: u32,
    /// Milliseconds that the questions of one batch may take. 1 to 10,000.
    pub time_ms: u32,
    /// Questions that are answered in one call of the script. 1 to 256.
    pub batch: usize,
    /// Milliseconds that a packet waits for its answer, half of them for its turn; then it is dropped undecided, and its flow goes on asking. 1 to 10,000.
    /// Longer wants a longer `queue`: where more come in half of it than that has room for, strangers find none.
    pub wait_ms: u32,
    /// Packets of one worker that may wait for answers. 1 to 65,536. An eighth of them can only be renewals, and
    /// another eighth only these and flows that ask again after half a second or more. To be raised with `wait_ms`: it is to have room for what comes in half of that.
    pub queue: usize,
    /// What is answered where the policy fails. Not to flows that ask for renewal: they keep their grant until it expires. Nor where it was not asked, or did not answer, in
    /// time: nothing is decided then.
    pub fail_safe: FailSafeConfig,
    /// A policy that fails is logged once in so many seconds. 1 to 86,400.
    pub log_every_s: u32,
}

impl Default for PolicySection {
    fn default() -> Self {
        PolicySection {
            name: None,
            file: None,
            parameters: BTreeMap::new(),
            memory_mib: 32,
            steps: 10_000,
            time_ms: 50,
            batch: 64,
            wait_ms: 200,
            queue: 1024,
            fail_safe: FailSafeConfig::Decline { seconds: 10 },
            log_every_s: 10,
        }
    }
}

/// A value for a script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Parameter {
    /// `true` or `false`.
    Switch(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// Several values, in order.
    List(Vec<Parameter>),
    /// Values by name.
    Table(BTreeMap<String, Parameter>),
}

/// What is answered where a policy fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields, tag = "action")]
pub enum FailSafeConfig {
    /// The flow is declined, and its packet dropped. For those who would rather be closed than flooded.
    Decline {
        /// For so long; 1 to 86,400.
        seconds: u32,
    },
    /// The flow is granted a little, and its packet goes on. For those who would rather be flooded than closed.
    Grant {
        /// KiB per second; at least 1.
        rate: u32,
        /// For so long; 1 to 86,400.
        seconds: u32,
    },
    /// Nothing is decided, and the packet dropped: the flow goes on asking.
    Nothing {},
}

impl PolicySection {
    /// The fail-safe, checked.
    pub(crate) fn fail_safe(&self) -> Result<FailSafe, PolicyError> {
        let seconds = |seconds: u32| range("policy.fail_safe.seconds", seconds.into(), 1, 86_400);
        match self.fail_safe {
            FailSafeConfig::Nothing {} => Ok(FailSafe { decision: Decision::None, forward: false }),
            FailSafeConfig::Decline { seconds: expire_s } => {
                seconds(expire_s)?;
                Ok(FailSafe { decision: Decision::Declined { expire_s }, forward: false })
            }
            FailSafeConfig::Grant { rate, seconds: expire_s } => {
                seconds(expire_s)?;
                range("policy.fail_safe.rate", rate.into(), 1, u32::MAX.into())?;
                let renew_ms = expire_s * 750;
                let step_ms = 1000;
                let decision =
                    Decision::Granted { rate_kib_s: rate, expire_s, renew_ms, step_ms, direct: false };
                Ok(FailSafe { decision, forward: true })
            }
        }
    }

    /// Checks the numbers.
    pub(crate) fn check(&self) -> Result<(), PolicyError> {
        range("policy.memory_mib", self.memory_mib.into(), 4, 4096)?;
        range("policy.steps", self.steps.into(), 100, 10_000_000)?;
        range("policy.time_ms", self.time_ms.into(), 1, 10_000)?;
        range("policy.batch", self.batch as u64, 1, 256)?;
        range("policy.wait_ms", self.wait_ms.into(), 1, 10_000)?;
        range("policy.queue", self.queue as u64, 1, 65_536)?;
        range("policy.log_every_s", self.log_every_s.into(), 1, 86_400)?;
        self.fail_safe().map(drop)
    }
}

fn range(key: &str, value: u64, least: u64, most: u64) -> Result<(), PolicyError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(PolicyError::config(key, format!("{value}: give {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_reads_as_its_page_says() {
        let section: PolicySection = toml::from_str(
            "name = \"deny-list\"\nfail_safe = { action = \"grant\", rate = 8, seconds = 60 }\n\
             [parameters]\nfile = \"deny.txt\"\nseconds = 60\nports = [80, 443]\nstrict = true\n",
        )
        .unwrap();
        assert_eq!(section.parameters["file"], Parameter::Text("deny.txt".into()));
        assert_eq!(section.parameters["seconds"], Parameter::Number(60.0));
        assert_eq!(section.parameters["strict"], Parameter::Switch(true));
        let ports = vec![Parameter::Number(80.0), Parameter::Number(443.0)];
        assert_eq!(section.parameters["ports"], Parameter::List(ports));
        let (renew_ms, step_ms) = (45_000, 1000);
        let granted = Decision::Granted { rate_kib_s: 8, expire_s: 60, renew_ms, step_ms, direct: false };
        assert_eq!(section.fail_safe().unwrap(), FailSafe { decision: granted, forward: true });
        assert!(toml::from_str::<PolicySection>("colour = 1").is_err());
        assert!(toml::from_str::<PolicySection>("fail_safe = { action = \"decline\" }").is_err());
        let nothing = toml::from_str::<PolicySection>("fail_safe = { action = \"nothing\" }").unwrap();
        assert_eq!(nothing.fail_safe().unwrap(), FailSafe { decision: Decision::None, forward: false });
        let text = "fail_safe = { action = \"nothing\", seconds = 1 }";
        let error = toml::from_str::<PolicySection>(text).unwrap_err();
        assert!(error.message().contains("unknown field `seconds`"), "{}", error.message());
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let wrong =
            |text: &str| toml::from_str::<PolicySection>(text).unwrap().check().unwrap_err().to_string();
        assert_eq!(wrong("batch = 0"), "grantor.policy.batch: 0: give 1 to 256");
        assert_eq!(wrong("memory_mib = 1"), "grantor.policy.memory_mib: 1: give 4 to 4096");
        assert_eq!(wrong("steps = 1"), "grantor.policy.steps: 1: give 100 to 10000000");
        assert_eq!(wrong("time_ms = 0"), "grantor.policy.time_ms: 0: give 1 to 10000");
        assert_eq!(wrong("wait_ms = 0"), "grantor.policy.wait_ms: 0: give 1 to 10000");
        assert_eq!(wrong("queue = 70000"), "grantor.policy.queue: 70000: give 1 to 65536");
        assert_eq!(wrong("log_every_s = 0"), "grantor.policy.log_every_s: 0: give 1 to 86400");
        let text = "fail_safe = { action = \"grant\", rate = 0, seconds = 60 }";
        assert_eq!(wrong(text), "grantor.policy.fail_safe.rate: 0: give 1 to 4294967295");
        let text = "fail_safe = { action = \"decline\", seconds = 0 }";
        assert_eq!(wrong(text), "grantor.policy.fail_safe.seconds: 0: give 1 to 86400");
        assert!(PolicySection::default().check().is_ok());
    }
}
