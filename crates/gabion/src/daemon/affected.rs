//! Counts of files that are not protected, with the first names of damaged and lost ones.

use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue::{Catalogue, State, States};

/// Names of each kind.
const NAMES: usize = 5;

/// Counts of files by state, and names.
#[derive(Debug, Clone)]
pub(super) struct AffectedFiles {
    pub(super) counts: Vec<(State, u64)>,
    pub(super) damaged: Vec<String>,
    pub(super) lost: Vec<String>,
}

impl AffectedFiles {
    /// With the names of the last look, if the counts are the same.
    pub(super) fn read(
        catalogue: &Catalogue,
        counts: &[(State, u64)],
        known: Option<AffectedFiles>,
    ) -> AffectedFiles {
        if let Some(known) = known.filter(|known| known.counts == counts) {
            return known;
        }
        let names = |state| {
            let is_some = counts.iter().any(|it| it.0 == state);
            let page = is_some.then(|| catalogue.page(b"", States::One(state), None, NAMES));
            let files = page.and_then(Result::ok).map(|page| page.files).unwrap_or_default();
            files.iter().map(|(path, _)| DisplayPath::bytes(path).to_string()).collect()
        };
        AffectedFiles { counts: counts.to_vec(), damaged: names(State::Damaged), lost: names(State::Lost) }
    }

    /// Number of files in a state.
    pub(super) fn count(&self, wanted: State) -> u64 {
        self.counts.iter().find(|it| it.0 == wanted).map_or(0, |it| it.1)
    }
}
