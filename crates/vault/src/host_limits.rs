//! Limits of hosts, as runs keep to them.

use crate::changelog::WorkerId;
use crate::run::RunContext;
use crate::throttle::Throttle;
use crate::timer::with_timer;
use crate::vault::Vault;
use crate::world::{Clock, host};

/// Runs `work` with a throttle that keeps to the limits of the run, of the policy and of this host. The limits of the
/// host are asked for first and then every second; while the changelog does not answer, the last ones hold. Without a
/// name the worker counts as one more.
pub(crate) fn throttled<T>(
    vault: &Vault,
    context: RunContext<'_>,
    name: Option<&WorkerId>,
    work: impl FnOnce(&Throttle<'_>) -> T,
) -> T {
    let throttle = Throttle::new(context.rate.or(vault.policy.rate), context.stopped);
    let (changelog, unnamed) = (&*vault.changelog, WorkerId(host()));
    let name = name.unwrap_or(&unnamed);
    let ask = || {
        if let Ok(allowance) = changelog.allowance(name) {
            throttle.set_host_rate(allowance.rate());
        }
    };
    ask();
    match vault.clock {
        Clock::Manual(_) => work(&throttle),
        Clock::System => with_timer("limits", &ask, || work(&throttle)),
    }
}
