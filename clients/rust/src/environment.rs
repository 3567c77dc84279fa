//! The environment variables and the home directory of the user.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::ConnectError;

type Lookup = dyn Fn(&str) -> Option<OsString>;

/// The environment for discovery: that of the process, or one of a test.
pub(crate) struct Environment {
    variables: Box<Lookup>,
    home: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process.
    pub(crate) fn of_process() -> Self {
        Self { variables: Box::new(|name| env::var_os(name)), home: env::home_dir() }
    }

    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)], home: &Path) -> Self {
        let known: std::collections::HashMap<String, OsString> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
        Self { variables: Box::new(move |name| known.get(name).cloned()), home: Some(home.to_owned()) }
    }

    /// The value of a variable; None if it is blank or not set.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let value = (self.variables)(name)?.to_string_lossy().trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    /// The value of a boolean variable; None if it is blank or not set. Other values are errors.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ConnectError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.to_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(Some(true)),
            "0" | "false" | "no" | "off" => Ok(Some(false)),
            _ => Err(ConnectError::new(format!("{name} is {text:?}; write 1 for yes or 0 for no"))),
        }
    }

    /// The path in a variable, with a leading `~` expanded; None if it is blank or not set.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        let value = (self.variables)(name)?;
        if value.to_string_lossy().trim().is_empty() {
            return None;
        }
        Some(expanded(Path::new(&value), self.home.as_deref()))
    }

    /// The path in a variable of OpenClaw; None if it is blank, `undefined`, `null` or not set. A leading `~` is `home`,
    /// or the home directory of the user.
    pub(crate) fn openclaw_path(&self, name: &str, home: Option<&Path>) -> Option<PathBuf> {
        match self.text(name)?.as_str() {
            "undefined" | "null" => None,
            text => Some(expanded(Path::new(text), home.or(self.home.as_deref()))),
        }
    }

    /// A path below the home directory, or below the working directory if there is no home directory.
    pub(crate) fn in_home(&self, name: &str) -> PathBuf {
        self.home.as_deref().unwrap_or(Path::new("")).join(name)
    }
}

fn expanded(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}
