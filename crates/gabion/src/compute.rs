//! Device of a command or of a daemon's source, and coders of vaults that use it.

use crate::machine::Cpu;
use gabion_device::{Chooser, Notice, Options};
use gabion_engine::Error;
use gabion_engine::backends::Backends;
use gabion_vault::coder::Coders;
use std::fmt;
use std::sync::Arc;

pub use gabion_device::{DeviceChoice, DeviceError, Report};

/// A device that was chosen, or that will be chosen by the first work that is large enough; cheap to clone.
#[derive(Clone)]
pub struct Compute {
    choice: DeviceChoice,
    chooser: Arc<Chooser>,
}

impl Compute {
    /// Opens a device that is named. `notice` is called with the choice of `auto`, when it is made.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] if it cannot be used.
    pub fn open(options: Options, notice: Option<Notice>) -> Result<Compute, DeviceError> {
        let choice = options.choice;
        let options = Options { cpu_model: Cpu::of_this_machine().model, ..options };
        let chooser = Chooser::new(options)?.with_notice(notice);
        Ok(Compute { choice, chooser: Arc::new(chooser) })
    }

    /// Coders for a vault that `threads` threads use at once.
    ///
    /// # Errors
    /// A forced kernel that cannot run here.
    pub fn coders(&self, threads: usize) -> Result<Coders, Error> {
        match self.choice {
            DeviceChoice::Cpu => Coders::new(),
            _ => Coders::with_backends(self.backends(), threads),
        }
    }

    /// The choice as a value for libraries.
    pub fn backends(&self) -> Arc<dyn Backends> {
        self.chooser.clone()
    }

    /// The value of `--device`.
    pub fn choice(&self) -> DeviceChoice {
        self.choice
    }

    /// What was chosen and why; none before there was work.
    pub fn report(&self) -> Option<Report> {
        self.chooser.report()
    }
}

impl fmt::Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("choice", &self.choice).finish_non_exhaustive()
    }
}
