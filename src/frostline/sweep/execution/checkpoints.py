"""When checkpoints of a run are kept: every ten minutes of training, and when a long run has to stop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from time import monotonic

from safetensors import SafetensorError

from frostline import FrostlineError
from frostline.sweep.execution.stopping import STOP, WORTH_KEEPING
from frostline.sweep.results.checkpoint_files import CheckpointFiles
from frostline.training.checkpoint import State
from frostline.training.context import RunContext
from frostline.training.specification import RunSpec

EVERY = 600.0  # seconds of training


@dataclass
class RunCheckpoints:
    """The checkpoints of one run, or of a stack of runs.

    Attributes:
        files: Where they are.
        stack: The runs.
        context: How many examples are computed together: a state is continued only with the same number.
        note: Called with a sentence on what goes wrong.
    """

    files: CheckpointFiles
    stack: Sequence[RunSpec]
    context: RunContext
    note: Callable[[str], None]
    since: float = field(default_factory=monotonic)

    def load(self) -> State | None:
        return self.files.load(self.stack[0].digest, self._about(), self.note)

    def after_step(self, state: Callable[[], State]) -> None:
        """Keep the state if it is time.

        Raises:
            Stopped: Training is asked to stop.
        """
        if monotonic() - self.since > (WORTH_KEEPING if STOP.made else EVERY):
            self._keep(state())
        STOP.stop_if_made()

    def _keep(self, state: State) -> None:
        steps = state["present"]["training"]["step"] + sum(phase["records"][0]["steps"] for phase in state["finished"])
        try:
            self.files.save(self.stack[0].digest, steps, state, self._about())
        except (OSError, SafetensorError, FrostlineError) as error:  # training can go on without it
            self.note(
                f"A checkpoint of {self.stack[0].trainable}, seed {self.stack[0].seed} could not be kept ({error})."
            )
        self.since = monotonic()
        STOP.since = self.since

    def _about(self) -> dict[str, object]:
        """What a state belongs to. With anything else, the run starts again."""
        return {
            "runs": [spec.digest for spec in self.stack],
            "micro_batch": self.context.micro_batch(self.stack[0]),
            **{package: version(package) for package in ("frostline", "torch")},
        }
