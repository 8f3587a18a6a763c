//! Parameters of the disks on the command line.

use gabion_forecast::{Given, ParameterError, Parameters, Rational, quantity};

/// Parameters of the disks. Defaults are those of table 1-2 of the thesis.
#[derive(clap::Args)]
pub(super) struct Disks {
    /// Size of a disk [default: 4TB]
    #[arg(long, help_heading = "Disks", value_name = "SIZE", value_parser = quantity::bytes, allow_hyphen_values = true)]
    capacity: Option<Rational>,
    /// Mean time between failures of a disk, such as 1000000h or 50y [default: 1000000h]
    #[arg(long, help_heading = "Disks", value_name = "TIME", value_parser = quantity::hours, allow_hyphen_values = true)]
    mtbf: Option<Rational>,
    /// Annual failure rate instead: the share of disks that fail per year, such as 2.12%
    #[arg(long, help_heading = "Disks", value_name = "SHARE", value_parser = quantity::share, allow_hyphen_values = true, conflicts_with = "mtbf")]
    afr: Option<Rational>,
    /// Mean time of a rebuild [default: 12h]
    #[arg(long, help_heading = "Disks", value_name = "TIME", value_parser = quantity::hours, allow_hyphen_values = true)]
    rebuild: Option<Rational>,
    /// Unrecoverable read errors per bit read; 8e-15/B per byte [default: 1e-15]
    #[arg(long, help_heading = "Disks", value_name = "RATE", value_parser = quantity::per_bit, allow_hyphen_values = true)]
    read_errors: Option<Rational>,
    /// The share of read errors that the disk does not report [default: 1%]
    #[arg(long, help_heading = "Disks", value_name = "SHARE", value_parser = quantity::share, allow_hyphen_values = true)]
    silent: Option<Rational>,
}

impl Disks {
    pub(super) fn parameters(&self) -> Result<Parameters, ParameterError> {
        let usual = Given::default();
        let or = |said: &Option<Rational>, usual: Rational| said.clone().unwrap_or(usual);
        let given = Given {
            capacity: or(&self.capacity, usual.capacity),
            failure_hours: or(&self.mtbf, usual.failure_hours),
            rebuild_hours: or(&self.rebuild, usual.rebuild_hours),
            read_errors: or(&self.read_errors, usual.read_errors),
            silent: or(&self.silent, usual.silent),
        };
        match &self.afr {
            Some(share) => given.with_annual_failure_rate(share)?.checked(),
            None => given.checked(),
        }
    }
}
