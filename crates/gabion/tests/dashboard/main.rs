//! The dashboard of the daemon in a real browser, driven over WebDriver.

/// One module around all of them, as in the suite `daemon`, whose fixture is used.
mod dashboard {
    mod browser;
    #[path = "../../mount/can_mount.rs"]
    mod can_mount;
    #[path = "../../vault/captured_output.rs"]
    #[allow(dead_code, reason = "other suites use the rest of it")]
    mod captured_output;
    #[path = "../../vault/corruption.rs"]
    mod corruption;
    #[path = "../../daemon/daemon/fixture.rs"]
    #[allow(dead_code, reason = "the suite of the daemon uses all of it")]
    mod fixture;
    #[path = "../../daemon/daemon/http.rs"]
    #[allow(dead_code, reason = "the suite of the daemon uses all of it")]
    mod http;
    mod pages;
    #[path = "../../vault/test_rng.rs"]
    #[allow(dead_code, reason = "other suites draw more from it")]
    mod test_rng;
}
