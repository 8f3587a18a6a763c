//! Measured rates, kept from run to run in one JSON file. The key of an entry names everything that the rate depends
//! on.

use super::measure::measure;
use super::{DeviceError, Rate};
use gabion_engine::Plan;
use gabion_engine::backends::Job;
use gabion_engine::kernel::Backend;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Path of the file, if rates are kept.
#[derive(Debug, Clone)]
pub(super) struct RateFile(Option<PathBuf>);

impl RateFile {
    /// Rates kept in a directory; measured every time without one.
    pub(super) fn new(directory: Option<&Path>) -> RateFile {
        RateFile(directory.map(|directory| directory.join("rates.json")))
    }

    /// The kept rates; none if the file is absent, damaged or of another format.
    fn read(&self) -> BTreeMap<String, Rate> {
        let text = self.0.as_ref().and_then(|path| std::fs::read(path).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn keep(&self, key: &str, rate: &Rate) -> std::io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let directory = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        let mut all = self.read();
        all.insert(key.to_owned(), rate.clone());
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(&serde_json::to_vec_pretty(&all)?)?;
        file.persist(path)?;
        Ok(())
    }

    /// The rate of a device, from the file or measured now; `machine` is the rest of its key.
    pub(super) fn of(
        &self,
        machine: &str,
        job: &Job<'_>,
        measured: impl FnOnce() -> Result<Rate, DeviceError>,
    ) -> Result<Rate, DeviceError> {
        let version = env!("CARGO_PKG_VERSION");
        let key =
            format!("{version} | {machine} | {} | {} bytes | {} threads", job.code, job.block, job.threads);
        if let Some(rate) = self.read().remove(&key) {
            return Ok(Rate { from_cache: true, ..rate });
        }
        let rate = measured()?;
        // If it cannot be kept, the next run measures again.
        let _ = self.keep(&key, &rate);
        Ok(rate)
    }

    pub(super) fn of_cpu(
        &self,
        model: Option<&str>,
        backend: &dyn Backend,
        plan: &Plan,
        job: &Job<'_>,
    ) -> Result<Rate, DeviceError> {
        let model = model.unwrap_or_default();
        self.of(&format!("{model} {}", backend.name()), job, || {
            let measured = measure(backend, plan, job)?;
            // The CPU has no start-up time beside its first stripe, which the rate includes.
            let device = backend.name().to_owned();
            Ok(Rate { device, gb_per_s: measured.rate / 1e9, startup: 0.0, from_cache: false })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::backends::Extent;
    use gabion_engine::kernel::KernelSet;

    #[test]
    fn rates_are_measured_once_and_damage_costs_a_measurement() {
        let directory = tempfile::tempdir().unwrap();
        let file = RateFile::new(Some(&directory.path().join("new")));
        let code = "4+2".parse().unwrap();
        let job = Job { code: &code, block: 4096, extent: Extent::Unknown, threads: 1 };
        let mut times = 0;
        let mut ask = |machine: &str, job: &Job<'_>| {
            file.of(machine, job, || {
                times += 1;
                Ok(Rate { device: "x".to_owned(), gb_per_s: 2.0, startup: 0.5, from_cache: false })
            })
            .unwrap()
            .from_cache
        };
        assert!(!ask("one", &job));
        assert!(ask("one", &job));
        assert!(!ask("two", &job));
        assert!(!ask("one", &Job { threads: 2, ..job }));
        std::fs::write(directory.path().join("new/rates.json"), "{").unwrap();
        assert!(!ask("one", &job));
        assert_eq!(times, 4);
    }

    #[test]
    fn the_cpu_has_a_rate() {
        let code: gabion_engine::Code = "4+2".parse().unwrap();
        let job = Job { code: &code, block: 65536, extent: Extent::Unknown, threads: 1 };
        let (row, plan) = (KernelSet::chosen().unwrap(), code.encode_plan().unwrap());
        let rate = RateFile::new(None).of_cpu(None, row, &plan, &job).unwrap();
        assert!(rate.gb_per_s > 0.0, "{rate:?}");
        assert_eq!(rate.seconds(1e9 * rate.gb_per_s).round(), 1.0);
    }
}
