use super::*;

fn counts(parts: usize) -> Vec<AtomicUsize> {
    (0..parts).map(|_| AtomicUsize::new(0)).collect()
}

#[test]
fn every_part_runs_once_with_spinning_and_sleeping_workers() {
    for workers in [0, 1, 3] {
        let pool = Pool::new(workers).unwrap();
        for round in 0..2000 {
            let ran = counts(round % 7);
            pool.run(ran.len(), &|part| {
                ran[part].fetch_add(1, Ordering::Relaxed);
            });
            assert!(ran.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{workers} {round}");
            if round % 500 == 0 {
                // Long enough for all workers to sleep.
                std::thread::sleep(2 * SPIN_TIME);
            }
        }
    }
}

#[test]
fn callers_at_the_same_time_get_their_own_results() {
    let pool = Pool::new(2).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..2000 {
                    let ran = counts(1 + (caller + round) % 5);
                    pool.run(ran.len(), &|part| {
                        ran[part].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(ran.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                }
            });
        }
    });
}

#[test]
fn a_worker_takes_part_and_its_panic_reaches_the_caller() {
    let pool = Pool::new(1).unwrap();
    let both = std::sync::Barrier::new(2);
    pool.run(2, &|_| {
        both.wait();
    });
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        pool.run(2, &|part| {
            both.wait();
            assert!(part == 0, "thrown by part {part}");
        });
    }));
    assert_eq!(*thrown.unwrap_err().downcast::<String>().unwrap(), "thrown by part 1");
    pool.run(2, &|_| {
        both.wait();
    });
}

#[test]
fn a_long_part_lets_its_caller_sleep() {
    let pool = Pool::new(1).unwrap();
    let both = std::sync::Barrier::new(2);
    let over = AtomicBool::new(false);
    pool.run(2, &|part| {
        both.wait();
        if part == 1 {
            std::thread::sleep(200 * SPIN_TIME);
            over.store(true, Ordering::Relaxed);
        }
    });
    assert!(over.load(Ordering::Relaxed), "the caller has waited for the part");
}
