//! Whether what was decided about a flow holds under another policy.
//!
//! A flow notes its policy's number, and not who decided about it: there is no room for that. Where each flow belongs is known, though: to the Grantor that the
//! policy would lead it to if all were up, its *home*. Mostly that one has decided. Where another one may have (home was down, the decision came late, a Grantor was asked
//! by the policy of before), the flow is a *stray*: some Grantor that the noted policy names has decided, and which is not known. So
//!
//! ```text
//!  decided by its home ---> holds under each policy that names that Grantor; a stray there if that is not its home
//!  a stray ---------------> holds under each policy that names all that the noted one names
//! ```
//!
//! That errs on the safe side: a stray may fall though its Grantor is named still, which costs a request; no decision holds under a policy
//! that does not name whose it is.
//!
//! **Revocations** are asked about for the Grantor in charge of the flow: its home, or who stands in. Once home is in charge of a stray again, they are asked about for all that the policy names, for
//! one of them has decided; what falls so asks home, and is no stray any more. Not while home is down: what a stand-in decides has a rank that home may have revoked long ago, and would fall as often as
//! it is decided. So of several that stand in for one another, the one that has decided cannot revoke that while yet another is in charge.

use super::Gate;
use crate::counters::{Counter, Counters};
use crate::family::Paired;
use crate::flow::FlowState;
use crate::policy::{Choice, Choices};
use tidemill_decision::revocation::Revocations;
use tidemill_flow::hash::mix;

impl<A: Paired<W>, const W: usize> Gate<A, W> {
    /// The number of the Grantor that a flow belongs to by a policy of this number, whoever is down.
    fn home(spread: u64, choices: &Choices<A>, number: u32, (source, destination): (A, A)) -> Option<u16> {
        let Choice::Grantors(buckets) = choices.get(number) else { return None };
        Some(choices.home(buckets, mix(source.fold() ^ spread ^ destination.fold().rotate_left(32))))
    }

    /// Whether a decision of this Grantor's, by a policy of this number, is not that of the flow's home. An operator's has no Grantor, and is taken for home's.
    pub(super) fn strays(
        spread: u64,
        choices: &Choices<A>,
        number: u32,
        flow: (A, A),
        grantor: Option<u16>,
    ) -> bool {
        grantor.is_some_and(|grantor| Self::home(spread, choices, number, flow) != Some(grantor))
    }

    /// Whether nobody has revoked what was decided about a flow with a policy of this number.
    #[inline(always)]
    pub(crate) fn stands(
        spread: u64,
        choices: &Choices<A>,
        revoked: &Revocations<A>,
        state: &FlowState,
        flow: (A, A),
        number: u32,
    ) -> bool {
        let Choice::Grantors(buckets) = choices.get(number) else { return true };
        let stands = |grantor| revoked.stands(grantor, flow.1, state.rank());
        let in_charge = Self::grantor(spread, choices, buckets, flow.0, flow.1);
        let is_back = || state.is_stray() && Self::home(spread, choices, number, flow) == Some(in_charge);
        stands(in_charge) && (!is_back() || choices.all_named(number, stands))
    }

    /// Whether what was decided about a flow holds by a policy of this number too; then its state says whether it is a stray there.
    pub(super) fn holds(
        spread: u64,
        choices: &Choices<A>,
        state: &mut FlowState,
        flow: (A, A),
        number: u32,
    ) -> bool {
        let note = state.note().into();
        if state.is_stray() {
            return choices.names_all(number, note);
        }
        let Some(by) = Self::home(spread, choices, note, flow).filter(|by| choices.names(number, *by)) else {
            return false;
        };
        state.set_stray(Self::strays(spread, choices, number, flow, Some(by)));
        true
    }

    /// The flow's policy is another one: what was decided holds, or it is a new flow's state.
    #[cold]
    pub(super) fn outgrow(
        &mut self,
        choices: &Choices<A>,
        counters: &mut Counters,
        state: &mut FlowState,
        flow: (A, A),
        number: u32,
    ) {
        if Self::holds(self.spread, choices, state, flow, number) {
            return;
        }
        counters.one(Counter::FlowsOutgrown);
        if let Some(program) = state.installed() {
            self.programs.release(program);
        }
        *state = state.forgotten();
    }
}
