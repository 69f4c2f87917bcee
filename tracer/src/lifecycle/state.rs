//! When a start is over.
//!
//! ```text
//!               a call or a container is waited for (Busy)
//!                 ┌───────────────────┐
//!                 ▼                   │
//!  request ──► Active ──── Quiet ──► Settling ──┐
//!                 │ ▲                 │         │ Quiet (again)
//!                 │ │                 │ ◄───────┘
//!                 │ └── Reopened ─┐   │
//!                 │               │   │
//!                 └─── Ended ──► Over ◄── Ended
//! ```

use std::fmt;

use crate::ids::MonotonicNs;
use crate::trace::Outcome;

/// State of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A call is open, or a container is still to reach its exec.
    Active,
    /// Nothing is waited for since then; a further container may still come.
    Settling(MonotonicNs),
    /// Over.
    Over(Outcome),
}

/// What moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something is waited for.
    Busy,
    /// Nothing is waited for since then.
    Quiet(MonotonicNs),
    /// It settled, failed, was stopped, or has all the containers that were asked for.
    Ended(Outcome),
    /// A further container of attempt 0, or a call whose name came late.
    Reopened,
}

/// A step that its state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Impossible {
    state: State,
    step: Step,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "impossible step {:?} in state {:?}", self.step, self.state)
    }
}

impl State {
    /// How the start turned out, as far as it is over.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            State::Over(outcome) => outcome,
            State::Active | State::Settling(_) => Outcome::InProgress,
        }
    }

    /// All transitions.
    pub(super) fn next(self, step: Step) -> Result<State, Impossible> {
        match (self, step) {
            (State::Active | State::Settling(_), Step::Busy) => Ok(State::Active),
            (State::Active | State::Settling(_), Step::Quiet(since)) => Ok(State::Settling(since)),
            (State::Active | State::Settling(_), Step::Ended(outcome)) => Ok(State::Over(outcome)),
            (State::Over(_), Step::Reopened) => Ok(State::Active),
            (State::Over(_), Step::Busy | Step::Quiet(_) | Step::Ended(_))
            | (State::Active | State::Settling(_), Step::Reopened) => Err(Impossible { state: self, step }),
        }
    }

    /// Whether the start is over.
    pub(super) fn is_over(self) -> bool {
        matches!(self, State::Over(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_is_left_only_by_reopening() {
        let over = State::Active.next(Step::Ended(Outcome::Complete)).unwrap();
        assert!(over.is_over());
        for step in [Step::Busy, Step::Quiet(MonotonicNs(1)), Step::Ended(Outcome::Failed)] {
            let error = over.next(step).unwrap_err().to_string();
            assert!(error.starts_with("impossible step"), "{error}");
        }
        assert_eq!(over.next(Step::Reopened), Ok(State::Active));
        assert!(State::Active.next(Step::Reopened).is_err());
    }
}
