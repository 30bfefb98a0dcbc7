"""The steps after the last run of a sweep: its tables, its answer, the saved model, and the page."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frostline import FrostlineError
from frostline.data.files import ELSEWHERE, RECORD_BYTES, locked, parsed, read_file, read_record, write_json
from frostline.data.kinds import REGRESSION
from frostline.data.splits import FEW_ROWS
from frostline.data.wording import duration_at_least
from frostline.model.model_files import ESTIMATOR, RECORD
from frostline.model.terms import OUTPUT_KEYS, opened_by
from frostline.report.answer.make_answer import make_answer
from frostline.report.answer.next_command import MORE_ROWS, SAME_COMMAND, next_command
from frostline.report.answer.recommended_classes import add_classes, held_out_logits, output_keys
from frostline.report.answer.run_groups import labelled_split, sweep_groups
from frostline.report.answer.scores_on_test import add_test_scores
from frostline.report.explanations import advice, in_train, not_by_pipeline, off_scale, unbalanced
from frostline.statistics.analysis_settings import LIKELY, AnalysisSettings
from frostline.statistics.answer import Answer
from frostline.statistics.predictions import RunPredictions
from frostline.statistics.run_group import SearchOutcome
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweeps.results.folder import TEST, Folder, read_alternatives
from frostline.sweeps.results.search_record import SearchRecord, as_of_now, newer_runs
from frostline.sweeps.results.tables import write_tables
from frostline.sweeps.settings import Settings

if TYPE_CHECKING:
    from frostline.sweeps.plan import Plan
    from frostline.sweeps.progress import Progress
    from frostline.training.estimators import Fitted

OTHER_MODEL = (
    "The saved model is not this one but an earlier one: the command of the sweep or search saves what is recommended."
)
EARLIER_MODEL = "The saved model is that of an earlier answer."
OTHER_OUTPUTS = (
    "The saved model has another temperature or threshold, or none: the command of the sweep or search saves these."
)


def finish(
    plan: "Plan",
    progress: "Progress",
    *,
    save_model: bool = True,
    alternatives: "Mapping[str, Fitted] | None" = None,
    interrupted: bool = False,
) -> Answer:
    """Write tables, answer, model and report after the last run, and return the answer.

    Args:
        plan: The sweep.
        progress: Where progress is reported.
        save_model: Whether to save the recommended model.
        alternatives: The models that train no layer, by name, one of which may be recommended; None if the sweep is no search.
        interrupted: Whether more runs will follow. The recommended model is then saved only if no run is trained again for it.
    """
    from frostline.report.pages.sweep_page import write_page
    from frostline.report.recommended_model import save_recommended

    out = plan.store.out
    # Other processes may have trained runs of this sweep, and end now, too.
    with locked(out / ".finish.lock", ELSEWHERE, inside=out):
        folder = Folder(out)
        answer = _rebuild(folder)
        if save_model:
            progress.begin("saving the model")
            save_recommended(plan, answer, progress, alternatives, interrupted=interrupted)
        _write_answer(out, answer)
        progress.begin("writing the report")
        write_page(folder, answer)
    if plan.spec.track and not interrupted:
        from frostline.report.trackers import track

        progress.begin("writing into trackers")
        try:
            track(out, plan.spec.track)
        except FrostlineError as error:  # everything else is done
            progress.note(str(error))
    return answer


def write_report(out: str | Path) -> Answer:
    """Rebuild the tables, the answer and report.html of a sweep's folder, and return the answer.

    Raises:
        FrostlineError: Files of the folder are missing or damaged.
    """
    from frostline.report.pages.sweep_page import write_page

    folder = Folder(out)
    answer = _rebuild(folder)
    _write_answer(folder.out, answer)
    write_page(folder, answer)
    return answer


def answer_of_now(out: Path) -> Answer:
    """The answer in the folder of a sweep. It is written anew, with the report, if it was made from anything else."""
    try:
        answer = Answer.read(out / "answer.json")
        if answer.made_from == Folder(out).digest:
            return answer
    except (OSError, ValueError):  # none yet, or one of another version
        pass
    return write_report(out)


def _rebuild(folder: Folder) -> Answer:
    made_from = folder.digest  # before the results are read: there may be more afterwards
    group, store, search = next(sweep_groups(folder)), folder.store, folder.search
    rows, evidence = group.runs, group.evidence
    assert isinstance(evidence, RunPredictions)
    answer = make_answer(group, settings_of(folder.spec))
    first = answer.sizes[0]
    for size in answer.sizes:
        size.folds = folder.identity.folds
    if search is None or search.over:  # a search that continues knows better
        answer.next_command, answer.next_seconds = _next_command(folder, answer, search, group.search)
    way = folder.spec.way_of(first.recommended.recipe) if first.recommended else None
    answer.opened_by = opened_by(way.head) if way and way.in_loop else "frostline"
    first.sentence += not_by_pipeline(answer)
    first.sentence += in_train(folder.data.report)
    if first.recommended and evidence.split.task_type == REGRESSION:
        numbers, _ = held_out_logits(first, first.recommended, evidence.logits)
        first.sentence += off_scale(evidence.split, numbers, standardized=folder.spec.standardize_targets)
    first.sentence += unbalanced(evidence.split, weighted=folder.spec.class_weights != "none") + advice(answer)
    answer.sentence = first.sentence
    answer.search = as_of_now(search, rows).model_dump() if search else None
    spec = folder.spec  # other models cannot be saved with a temperature and a threshold
    if way and not way.in_loop:
        spec = spec.model_copy(update={"calibrate": False, "threshold": None})
    add_classes(answer, evidence.split, evidence.logits, spec)
    test = labelled_split(folder, "test") if folder.is_complete else None
    if test is not None:
        done = [row for row in rows if row.test is not None]

        def logits(digest: str) -> Any:
            scored = store.test(digest)
            assert scored is not None
            return scored[1]

        add_test_scores(answer, done, test, logits, read_alternatives(folder.out, TEST) if search else {})
    answer.tested, answer.made_from, answer.depth = test is not None, made_from, folder.spec.depth
    answer.data = folder.data.model_dump(exclude={"notes", "columns"})
    answer.notes, answer.columns = folder.data.notes, folder.data.columns
    write_tables(folder.out, rows, folder.scores())
    return Answer.from_json(answer.to_json())


def _write_answer(out: Path, answer: Answer) -> None:
    """Complete an answer with what the folder of the saved model has, and write it."""
    facts = _saved_model(out)
    first = answer.sizes[0]
    chosen = first.recommended.run if first.recommended else first.decision and first.decision.choice
    differs = ""
    if not chosen:
        differs = EARLIER_MODEL
    elif facts.get("run") != chosen:
        differs = OTHER_MODEL
    elif _saved_outputs(out) != output_keys(answer):
        differs = OTHER_OUTPUTS
    if facts and differs:
        answer.sentence = first.sentence = f"{answer.sentence} {differs}"
    refit = facts.get("refit")  # the folder may come from others
    rows = refit.get("rows") if isinstance(refit, dict) and facts.get("run") == chosen else None
    answer.refit_rows = rows if isinstance(rows, int) else None
    write_json(out / "answer.json", answer.to_json(), inside=out)


def _saved_model(out: Path) -> dict[str, Any]:
    """What is recorded of the saved model; empty if there is none. One that a search has fitted is named by its choice."""
    for name in (RECORD, ESTIMATOR):
        try:
            facts = read_record(out / "model" / name)
        except (OSError, ValueError):
            continue
        return facts if name == RECORD else {"run": PROBE if facts.get("probe") else WORDS}
    return {}


def _saved_outputs(out: Path) -> dict[str, Any]:
    """The temperature and the threshold of the saved model, as its config.json has them; empty for what has no such file."""
    try:
        config = parsed(read_file(out / "model" / "config.json", RECORD_BYTES))
    except (OSError, ValueError):
        return {}
    return {name: config[name] for name in OUTPUT_KEYS if name in config} if isinstance(config, dict) else {}


def _next_command(
    folder: Folder, answer: Answer, search: SearchRecord | None, outcome: SearchOutcome
) -> tuple[str | None, float | None]:
    """The step that would make the answer about these runs surer, and the seconds that it trains."""
    spec, enough = folder.spec, None if search is None or newer_runs(search, folder.rows) else search.enough_budget
    larger = None
    if search and enough:
        larger = (
            f"{SAME_COMMAND}--budget {duration_at_least(enough)}",
            enough - search.spent_seconds - search.elsewhere_seconds,
        )
        if outcome.instead:
            return larger
    with_folds = not folder.identity.folds and spec.validation is None and folder.identity.train_rows < FEW_ROWS
    return next_command(
        folder.out,
        spec.values_of("seeds"),
        answer.sizes[0],
        sure=answer.sure,
        of_search=search is not None,
        longest=outcome.longest,
        larger=larger,
        more_rows=f"{SAME_COMMAND}--folds 5 and another --out" if with_folds else MORE_ROWS,
        own_code=folder.written.own_code,
        factor=lambda recipe: spec.way_of(recipe).rate_factor,
        smaller=answer.sizes[1:],
    )


def settings_of(spec: Settings) -> AnalysisSettings:
    """The settings of a sweep's answer. A target or a margin that is given must be reached, else score and cost are weighed."""
    given = spec.target is not None or spec.margin is not None
    sure = spec.sure or (LIKELY if given else None)
    settings = AnalysisSettings(target=spec.target or AnalysisSettings.target, price=spec.price / 100, sure=sure)
    return settings if spec.margin is None else replace(settings, margin=spec.margin, by_margin=True)
