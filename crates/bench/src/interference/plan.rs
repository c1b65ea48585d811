//! The order of measurements: interleaved, so that drift of the machine hits all alike.

use std::ops::Range;

/// One measurement: which server, under which condition, for which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// 0 .. repeats.
    pub repeat: usize,
    /// Index of the server.
    pub server: usize,
    /// Index of the condition; 0 is isolation.
    pub condition: usize,
}

/// What the order is made of.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Servers.
    pub servers: usize,
    /// Conditions, isolation among them.
    pub conditions: usize,
    /// How often each is measured.
    pub repeats: usize,
    /// Of the first order.
    pub seed: u64,
    /// Servers one after the other within a repeat, for engines that cannot all be resident.
    pub in_turns: bool,
}

impl Plan {
    /// All slots in order. The first repeat's order is drawn by the seed; each further repeat
    /// begins further along the same circle, so that over the repeats every slot is early as often
    /// as it is late.
    #[must_use]
    pub fn order(&self) -> Vec<Slot> {
        (0..self.repeats).flat_map(|repeat| self.one_repeat(repeat)).collect()
    }

    fn one_repeat(&self, repeat: usize) -> Vec<Slot> {
        let slot = |server, condition| Slot { repeat, server, condition };
        if self.in_turns {
            let conditions = |server| {
                let seed = self.seed.wrapping_add(1 + server as u64);
                self.circle(0..self.conditions, seed, repeat)
            };
            let servers = self.circle(0..self.servers, self.seed, repeat);
            let turn = |server| conditions(server).into_iter().map(move |c| slot(server, c));
            return servers.into_iter().flat_map(turn).collect();
        }
        let all = self.circle(0..self.servers * self.conditions, self.seed, repeat);
        all.into_iter().map(|i| slot(i % self.servers, i / self.servers)).collect()
    }

    /// The numbers in a seeded order, begun `repeat` of `repeats` parts along.
    fn circle(&self, numbers: Range<usize>, seed: u64, repeat: usize) -> Vec<usize> {
        let mut order: Vec<usize> = numbers.collect();
        shuffle(&mut order, seed);
        let length = order.len();
        // Fewer numbers than repeats: one further each time.
        let step = (length / self.repeats.max(1)).max(1);
        order.rotate_left(if length == 0 { 0 } else { repeat * step % length });
        order
    }
}

/// Fisher and Yates, with splitmix64.
fn shuffle(order: &mut [usize], seed: u64) {
    let mut state = seed;
    for i in (1..order.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(i, ((z ^ (z >> 31)) % (i as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn plans()(
            servers in 1usize..5, conditions in 1usize..9, repeats in 1usize..9,
            seed: u64, in_turns: bool,
        ) -> Plan {
            Plan { servers, conditions, repeats, seed, in_turns }
        }
    }

    proptest! {
        #[test]
        fn each_repeat_has_each_slot_once(plan in plans()) {
            let order = plan.order();
            let each = plan.servers * plan.conditions;
            prop_assert_eq!(order.len(), each * plan.repeats);
            for (repeat, slots) in order.chunks(each).enumerate() {
                prop_assert!(slots.iter().all(|slot| slot.repeat == repeat));
                prop_assert_eq!(slots.iter().collect::<HashSet<_>>().len(), each);
            }
            prop_assert_eq!(order, plan.order());
        }

        #[test]
        fn turns_change_servers_no_more_than_they_must(plan in plans()) {
            let plan = Plan { in_turns: true, ..plan };
            for slots in plan.order().chunks(plan.servers * plan.conditions) {
                let changes = slots.windows(2).filter(|w| w[0].server != w[1].server).count();
                prop_assert_eq!(changes, plan.servers - 1);
            }
        }

        /// With as many repeats as slots every slot has every place once.
        #[test]
        fn places_are_shared_out(servers in 1usize..4, conditions in 1usize..4, seed: u64) {
            let each = servers * conditions;
            let plan = Plan { servers, conditions, repeats: each, seed, in_turns: false };
            let mut places = HashSet::new();
            for slots in plan.order().chunks(each) {
                for (place, slot) in slots.iter().enumerate() {
                    places.insert((place, slot.server, slot.condition));
                }
            }
            prop_assert_eq!(places.len(), each * each);
        }
    }
}
