//! Whether the process is taken off its processors so often that the kernel's tick is no fair moment to look: where others
//! wait, the scheduler switches at ticks, so a thread is seen again and again where its turn ends. Asked at each look at
//! the threads; what follows is the clocks' business.

/// See the head of the module.
#[derive(Default)]
pub(super) struct Preemption {
    switches: u64,
    cpu_ns: u64,
    crowded: bool,
    /// Looks in a row that spoke against `crowded`.
    against: u32,
}

/// CPU time below which a look says nothing: a handful of switches would decide.
const LEAST_CPU_NS: u64 = 50_000_000;
/// Looks that must agree before clocks are changed: one look is an accident.
const LOOKS_TO_CROWD: u32 = 2;
/// As many to change back: after seconds of CPU time, since each change opens every clock anew.
const LOOKS_TO_CALM: u32 = 8;

impl Preemption {
    /// Begins anew with these totals.
    pub fn begin(switches: u64, cpu_ns: u64) -> Self {
        Self { switches, cpu_ns, ..Self::default() }
    }

    /// Takes the totals of now: how often the process was switched away against its will, and its CPU time. Crowded is one
    /// switch for eight ticks of CPU time, calm one for 32; what lies between changes nothing.
    pub fn look(&mut self, switches: u64, cpu_ns: u64, kernel_tick_hz: u32) {
        let burnt_ns = cpu_ns.saturating_sub(self.cpu_ns);
        if burnt_ns < LEAST_CPU_NS {
            return;
        }
        let switched = switches.saturating_sub(self.switches);
        (self.switches, self.cpu_ns) = (switches, cpu_ns);
        let ticks = burnt_ns as u128 * u128::from(kernel_tick_hz) / 1_000_000_000;
        let speaks_against = match self.crowded {
            true => u128::from(switched) * 32 < ticks,
            false => u128::from(switched) * 8 > ticks,
        };
        self.against = if speaks_against { self.against + 1 } else { 0 };
        if self.against >= if self.crowded { LOOKS_TO_CALM } else { LOOKS_TO_CROWD } {
            self.crowded = !self.crowded;
            self.against = 0;
        }
    }

    /// What the looks came to.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks after each 100 ms of CPU time in which so many switches were seen; what they came to.
    fn after(preemption: &mut Preemption, switches: &[u64]) -> bool {
        for &count in switches {
            let (switches, cpu_ns) = (preemption.switches + count, preemption.cpu_ns + 100_000_000);
            preemption.look(switches, cpu_ns, 250);
        }
        preemption.is_crowded()
    }

    #[test]
    fn two_looks_in_a_row_make_it_crowded_and_one_does_not() {
        let mut preemption = Preemption::begin(1_000, 5);
        assert!(!after(&mut preemption, &[20, 0, 20, 0]));
        assert!(after(&mut preemption, &[20, 20]));
    }

    #[test]
    fn it_stays_crowded_until_many_looks_in_a_row_were_calm() {
        let mut preemption = Preemption::begin(0, 0);
        assert!(after(&mut preemption, &[20, 20]));
        assert!(after(&mut preemption, &[0, 0, 0, 0, 0, 0, 0, 2]), "the last one was between the two");
        assert!(!after(&mut preemption, &[0; 8]));
    }

    #[test]
    fn a_few_switches_of_an_ordinary_machine_are_not_crowded() {
        assert!(!after(&mut Preemption::begin(0, 0), &[3; 50]));
    }

    #[test]
    fn looks_that_saw_hardly_any_cpu_time_wait_for_more() {
        let mut preemption = Preemption::begin(0, 0);
        for look in 1..10 {
            preemption.look(100 * look, 1_000_000 * look, 250);
        }
        assert!(!preemption.is_crowded() && preemption.cpu_ns == 0);
    }
}
