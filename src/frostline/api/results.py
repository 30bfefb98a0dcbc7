"""The results of a sweep or a search: one object, which :func:`open` also makes of any of their folders."""

import html
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_type_hints

from frostline import FrostlineError
from frostline.api.keywords import Grid, require_known, takes
from frostline.api.prediction import Predictions, TagPredictions, predict
from frostline.data.wording import spoken
from frostline.report.explanations import headline
from frostline.report.rebuild import answer_of_now
from frostline.statistics.answer import Answer, ModelsAnswer, is_of_models
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.tables import frame
from frostline.sweeps.settings import GRID, make_settings
from frostline.sweeps.toml import NOT_SETTINGS, TRUST

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from frostline.api.prediction import TextSource


class Results:
    """The results of a sweep or a search. They are read from its folder, so they always are those of now.

    A notebook shows the answer, its figure and its choices.

    Attributes:
        folder: The folder.
    """

    def __init__(self, folder: Path, tables: Mapping[str, Any] | None = None) -> None:
        self.folder, self._tables = folder, tables or {}

    @property
    def answer(self) -> Answer:
        """The answer: choices, decision, costs and remarks. If its runs or settings have changed since, it is written anew."""
        return answer_of_now(self.folder)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        return spoken(self.answer.sentence)

    @property
    def report(self) -> Path:
        """The page with the answer, figures and tables, for a browser."""
        return self.folder / "report.html"

    @property
    def model_folder(self) -> Path:
        """The folder of the recommended model.

        Raises:
            FrostlineError: None is saved.
        """
        if not (self.folder / "model").is_dir():
            raise FrostlineError(
                f"{self.folder} has no model yet: it is saved after the last run, unless nothing can be recommended or "
                "save_model=False."
            )
        return self.folder / "model"

    def table(self) -> "pd.DataFrame":
        """One row per run, as in results.csv."""
        return frame(Folder(self.folder).rows)

    def plot(self) -> "Figure":
        """The quality of every choice against its cost; the score of every run if nothing can be recommended."""
        from frostline.report.figures.quality_against_cost import quality_against_cost
        from frostline.report.figures.score_figures import validation_curve

        answer = self.answer
        size, metric = answer.sizes[0], answer.metric
        return quality_against_cost(size, metric=metric) or validation_curve(size, metric=metric, chance=answer.chance)

    def predict(self, texts: "TextSource", **options: Any) -> Predictions | TagPredictions:
        """Predict with the recommended model, as :func:`frostline.predict` does with any model, which has the same options."""
        return predict(self.model_folder, texts, **options)

    @takes(Grid, dict.fromkeys(get_type_hints(Grid), ...))
    def more(self, *, save_model: bool = True, progress: Progress | None = None, **settings: Unpack[Grid]) -> "Results":
        """Train more runs in this folder, such as ``more(seeds=5)`` or ``more(tune="3,4")``.

        Without settings, runs that failed or have no result are trained. A search is continued by its own call, with a larger
        budget.

        Args:
            save_model: As for :func:`sweep <frostline.api.sweep.sweep>`.
            progress: As for :func:`sweep <frostline.api.sweep.sweep>`.
            **settings: Those of :func:`sweep <frostline.api.sweep.sweep>`. What is not given is as in the folder. A value of
                the grid (``tune``, ``seeds``, ``train_size``, ``learning_rate``, ``num_train_epochs``) replaces that of each of
                its parts.

        Raises:
            FrostlineError: A setting is unusable, or a table was given in Python and is not known any more.
        """
        from frostline.api.sweep import sweep

        require_known(settings, Results.more)
        folder = Folder(self.folder)
        folder.require_trust(trusted=settings.get(TRUST) is True)
        given = {**self._tables, **settings}
        if lost := [name for name in folder.written.origin.in_memory if name not in given]:
            raise FrostlineError(
                f"The {lost[0]} table of {self.folder} was given in Python and is in no file: give it again, as {lost[0]}=."
            )
        written = folder.spec.model_dump(mode="json", exclude=set(NOT_SETTINGS)) | folder.moved_paths(given)
        changes = {name: value for name, value in settings.items() if name in GRID}
        valid = make_settings({**written, **changes})
        new = {name: getattr(valid, name) for name in changes}
        grid = folder.spec.with_grids([part.model_copy(update=new) for part in folder.spec.grids_alone()])
        values = {name: value for name, value in grid.model_dump(mode="json").items() if name in (*GRID, "grid")}
        own = {name: value for name, value in given.items() if name not in GRID}
        own["out"] = self.folder
        return sweep(save_model=save_model, progress=progress, **{**written, **values, **own})

    def __repr__(self) -> str:
        try:
            answer = self.answer
        except FrostlineError as error:
            return f"<Results in {self.folder}: {error}>"
        return f"<Results in {self.folder}: {answer.runs.done} runs. {headline(spoken(answer.sentence))[0]}>"

    def _repr_html_(self) -> str:
        """The answer, its figure and its choices, as a notebook shows them."""
        from frostline.report.figures.drawing import svg

        first, rest = headline(self.sentence)
        sentence = f"<p><b>{html.escape(first)}</b> {html.escape(rest)}</p>"
        return f"{sentence}{svg(self.plot(), str(self.folder))}{_html(self._choices())}"

    def _choices(self) -> "pd.DataFrame":
        """What there is to choose from, as the report prints it."""
        from frostline.report.tables.curve_tables import choices_table

        return choices_table(self.answer.sizes[0], price=self.answer.price).printed()


class SeveralModels(Results):
    """The results of a search over several models.

    Attributes:
        models: The results of each model that has runs, by its name.
    """

    @property
    def answer(self) -> ModelsAnswer:  # type: ignore[override]
        """Which model to take, what each of them reaches, and what it costs.

        If runs or settings have changed since, its sentence says so first: only the search weighs models against each other.
        """
        try:
            answer = ModelsAnswer.read(self.folder / "answer.json")
        except ValueError as error:
            raise FrostlineError(
                f"{self.folder / 'answer.json'} is damaged: the same search writes it again, from the runs in the folder."
            ) from error
        folders = {one.model: self.folder / one.folder for one in answer.models}
        now = {name: Folder(own).digest for name, own in folders.items() if (own / "sweep.toml").exists()}
        if changed := [name for name in folders if now.get(name) != answer.made_from.get(name)]:
            of = f"Runs or settings of {' and '.join(changed)} have changed since this answer was written"
            answer.sentence = f"{of}, and the same search takes them into account. {answer.sentence}"
        return answer

    @property
    def models(self) -> dict[str, Results]:
        folders = {one.model: self.folder / one.folder for one in self.answer.models if one.runs}
        return {name: Results(folder, self._tables) for name, folder in folders.items()}

    def table(self) -> "pd.DataFrame":
        """One row per run of every model."""
        import pandas as pd

        return pd.concat([one.table() for one in self.models.values()], ignore_index=True)

    def plot(self) -> "Figure":
        """The quality of every choice of every model against its cost of training."""
        from frostline.report.figures.quality_of_models import against_training

        figure = against_training(self.answer, {name: one.answer for name, one in self.models.items()})
        if figure is None:
            raise FrostlineError(f"{self.folder} has nothing to plot: no choice of any model has a score.")
        return figure

    def __repr__(self) -> str:
        return f"<Results of {len(self.answer.models)} models in {self.folder}. {headline(self.sentence)[0]}>"

    def _choices(self) -> "pd.DataFrame":
        from frostline.report.pages.models_page import models_table

        return models_table(self.answer).printed()


def _html(printed: "pd.DataFrame") -> str:
    """A table for a notebook; empty without rows."""
    if not len(printed):
        return ""
    lines = [[f"<th>{html.escape(name)}</th>" for name in printed.columns]]
    lines += [[f"<td>{html.escape(cell)}</td>" for cell in row] for row in printed.itertuples(index=False)]
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f"<table>{body}</table>"


def open(folder: str | Path) -> Results:
    """The results in a folder of a sweep or a search. No model is loaded.

    Raises:
        FrostlineError: The folder holds no results.
    """
    path = Path(folder).expanduser()
    if is_of_models(path):
        return SeveralModels(path)
    Folder(path)
    return Results(path)
