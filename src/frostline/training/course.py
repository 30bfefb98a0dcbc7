"""The course of a run, or of the K runs of a stack, through its phases.

A checkpoint keeps the records of the finished phases, and the state of the present one with all trained parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from frostline.training.checkpoint import Checkpoints, State, Stateful
from frostline.training.learner import TrainingRecord


@dataclass(frozen=True)
class Phase:
    """A finished phase. Most runs have one.

    Attributes:
        records: The course of each run.
        facts: The audit of what all runs share.
        own_facts: The audit of each run.
    """

    records: Sequence[TrainingRecord]
    facts: Mapping[str, Any]
    own_facts: Sequence[Mapping[str, Any]]

    @property
    def diverged(self) -> bool:
        """Whether all runs have diverged."""
        return all(record.outcome == "diverged" for record in self.records)

    def state(self) -> State:
        return {**vars(self), "records": [record.state() for record in self.records]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(**{**state, "records": [TrainingRecord.from_state(record) for record in state["records"]]})


class Course:
    """The finished phases, and where the present one continues.

    Attributes:
        finished: The finished phases.
        learned: What they have trained, by name. The state of the present phase has it too.
        continued_after: The numbers of steps in its phase after which an interrupted training was continued.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints, saved = checkpoints, checkpoints.load() or {}
        self.finished = [Phase.from_state(phase) for phase in saved.get("finished", [])]
        self.learned: Mapping[str, Tensor] = {}
        self.continued_after: list[int] = saved.get("continued_after", [])
        self.present: State | None = saved.get("present")
        if self.present is not None:
            self.continued_after = [*self.continued_after, self.present["training"]["step"]]

    def add(self, phase: Phase, learned: Mapping[str, Tensor]) -> None:
        """Record that a phase has finished. ``learned`` are the parameters that it has trained, by name."""
        self.finished.append(phase)
        self.learned = {name: p.detach().clone() for name, p in learned.items()}  # the model is reset before a phase

    def audit(self, run: int) -> dict[str, Any]:
        """The audit of a run. With several phases, it has the steps of each phase and the places that it moved."""
        audits = [{**phase.facts, **phase.own_facts[run]} for phase in self.finished]
        if len(audits) == 1:
            return audits[0]
        phases = [
            {"steps": phase.records[run].steps, "moved": phase.own_facts[run]["moved"]} for phase in self.finished
        ]
        moved = {place for phase in phases for place in phase["moved"]}
        return {
            **audits[-1],
            "tuned_share": sum(audit["tuned_share"] for audit in audits) / len(audits),
            "moved": [place for place in audits[-1]["by_place"] if place in moved],
            "phases": phases,
        }

    def of_phase(self, forward: Stateful, audit: Stateful) -> Checkpoints:
        """The checkpoints of the phase that trains with this forward function and has this audit."""
        return _OfPhase(self, forward, audit)


@dataclass(frozen=True)
class _OfPhase:
    """Keeps the states of a phase together with what came before."""

    course: Course
    forward: Stateful
    audit: Stateful

    def load(self) -> State | None:
        present, self.course.present = self.course.present, None
        if present is None:
            return None
        self.forward.load_state(present["forward"])
        self.audit.load_state(present["audit"])
        training: State = present["training"]
        return training

    def after_step(self, state: Callable[[], State]) -> None:
        self.course.checkpoints.after_step(
            lambda: {
                "finished": [phase.state() for phase in self.course.finished],
                "continued_after": self.course.continued_after,
                "present": {
                    "forward": self.forward.state(),
                    "audit": self.audit.state(),
                    "training": state(),
                },
            }
        )
