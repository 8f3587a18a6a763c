//! A lock that `fork` cannot leave locked.
//!
//! The child of a fork has one thread. A lock that another thread held at that moment would stay locked in the child
//! for ever. Handlers of `pthread_atfork` take the lock before a fork and release it afterwards in both processes.
//! Plans are compiled, and the engine is initialised, with this lock held.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

/// A value behind a lock.
pub(crate) struct Gate<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only accessed with the lock held, by one thread at a time.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    pub(crate) const fn new(value: T) -> Gate<T> {
        Gate { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. A statically initialised lock has no error that a caller could cause.
    pub(crate) fn lock(&'static self) {
        // SAFETY: the mutex is initialised and, in a static, never moved.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// This thread, or the thread that it is the copy of after a fork, holds it, and no reference to the value exists.
    pub(crate) unsafe fn unlock(&'static self) {
        // SAFETY: as for `lock`.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }

    /// Calls `work` with the value. `register` has to be called first for the lock to survive forks.
    pub(crate) fn with<R>(&'static self, work: impl FnOnce(&mut T) -> R) -> R {
        self.lock();
        // SAFETY: the lock is held, so this is the only reference; `work` cannot take the lock again, since the module
        // that owns the gate calls it with functions that do not.
        let result = catch_unwind(AssertUnwindSafe(|| work(unsafe { &mut *self.value.get() })));
        // SAFETY: locked above; the reference is gone.
        unsafe { self.unlock() };
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Registers handlers of forks, once per process. If the system has no memory for that, forks are not protected.
pub(crate) fn register(prepare: unsafe extern "C" fn(), after: unsafe extern "C" fn()) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handlers are functions of this library, which is never unloaded (`nodelete`).
        unsafe { libc::pthread_atfork(Some(prepare), Some(after), Some(after)) };
    });
}
