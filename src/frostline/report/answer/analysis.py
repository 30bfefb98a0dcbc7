"""The analysis of many results: every model, task and train size, and what they say together. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from frostline.report.answer.answer import answer_one
from frostline.report.answer.sentence import tuning
from frostline.statistics.adjustment import adjust
from frostline.statistics.cells import FULL, by_depth, counted
from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Evidence, Run, Scores
from frostline.statistics.outcomes import clear_distance, done, failures, judged, scored
from frostline.statistics.published_results import Results
from frostline.statistics.sizes import interaction, pays_from, spread
from frostline.statistics.tasks import over_tasks

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Group:
    """The runs of one model on one task, and what is known of their scores."""

    model: str
    task: str
    layers: int | None  # L
    runs: Sequence[Run]
    evidence: Evidence
    folder: Path | None = None  # of the sweep that they are from
    same_runs: bool = False  # scored on a further set: the trainings are those of another group


def group_of(results: Results, *, paired: bool = True) -> Group:
    """Runs of a table, whose predictions are not known."""
    evidence = Scores(results.metric, results.chance, paired)
    return Group(results.model, results.task, results.layers, results.runs, evidence)


def analyze(groups: Sequence[Group], choices: Choices) -> dict[str, Any]:
    """Everything that is said of the results, in plain values for JSON."""
    found = [_group(group, choices) for group in groups]
    comparisons = adjust([size for group in found for size in group["sizes"]])
    models = dict.fromkeys(group["model"] for group in found)
    return {
        "schema_version": SCHEMA_VERSION,
        "choices": asdict(choices),
        "groups": found,
        "comparisons": comparisons,  # that Holm's adjustment counts
        "models": [_model(model, [group for group in found if group["model"] == model], choices) for model in models],
        "failures": _failures(groups),
        "head_only": _head_only(found),
        "above_full": _above_full(found),
        "half_frozen": _half_frozen(found),
    }


def _group(group: Group, choices: Choices) -> dict[str, Any]:
    evidence = group.evidence
    sizes = sorted({run["train_size"] for run in group.runs}, key=lambda n: n or 0, reverse=True)
    layers = group.layers
    answers = [
        answer_one([run for run in group.runs if run["train_size"] == size], evidence, choices, layers)
        for size in sizes
    ]
    answers.sort(key=lambda answer: answer["recommended"] is None)  # the largest that has an answer speaks
    return {
        "model": group.model,
        "task": group.task,
        "metric": evidence.metric,
        "chance": evidence.chance,
        "rows": evidence.rows,
        "same_runs": group.same_runs,
        "layers": layers,
        "sentence": _sentence(answers),
        "sizes": answers,
        "rates": _rates(_ended(group), choices),
        "learning": {"pays_from": pays_from(answers), "interaction": interaction(answers), "spread": spread(answers)}
        if len(sizes) > 1
        else None,
    }


def _sentence(answers: Sequence[Mapping[str, Any]]) -> str:
    """The answer of the train size that speaks, which is named where there are several."""
    first, several = answers[0], len(answers) > 1 and answers[0]["train_size"]
    return f"With {first['train_size']:,} examples: {first['sentence']}" if several else str(first["sentence"])


def _rates(ended: Sequence[Run], choices: Choices) -> list[dict[str, Any]]:
    """Every train size, k and learning rate: failures with the interval of their rate, the mean with and without them."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    ladder = by_depth(ended)
    for name, runs in ladder.items():
        for run in runs:
            groups.setdefault((run["train_size"], name, run["learning_rate"]), []).append(run)
    places = {name: n for n, name in enumerate(ladder)}
    order = sorted(groups, key=lambda key: (key[0] or 0, places[key[1]], key[2] or 0.0))
    return [
        {
            **dict(zip(("train_size", "trainable", "learning_rate"), key, strict=True)),
            **failures(groups[key]),
            "mean": _mean(counted(groups[key], choices)),
            "mean_with_failures": _mean(scored(groups[key])),
        }
        for key in order
    ]


def _mean(runs: Sequence[Run]) -> float | None:
    return sum(run["validation_best"] for run in runs) / len(runs) if runs else None


def _ended(group: Group) -> list[Run]:
    """The finished runs with their outcomes, which are relative to the best of their train size."""
    sizes: dict[int | None, list[Run]] = {}
    for run in group.runs:
        sizes.setdefault(run["train_size"], []).append(run)
    evidence = group.evidence
    return [
        run for runs in sizes.values() for run in done(judged(runs, evidence.chance, clear_distance(runs, evidence)))
    ]


def _model(model: str, groups: Sequence[Mapping[str, Any]], choices: Choices) -> dict[str, Any]:
    curves = [{**group["sizes"][0], "task": group["task"]} for group in groups]
    layers = max((group["layers"] for group in groups if group["layers"]), default=None)
    together = over_tasks(curves, choices)
    sentence = _over_tasks(together, layers, choices) if together else None
    return {"model": model, "layers": layers, "sentence": sentence, "tasks": together}


def _over_tasks(together: Mapping[str, Any], layers: int | None, choices: Choices) -> str:
    """What all tasks of a model say together."""
    point = next(point for point in together["points"] if point["target"] == choices.target)
    counted = len(together["tasks"]) - len(together["left_out"]) - len(together["undefined"])
    raw = together["raw"]
    whole = "full's gain over guessing" if choices.corrected and len(raw) < counted else "full's score"
    where = "in the one task that counts" if counted == 1 else f"in each of {counted} tasks"
    for why, tasks in (
        ("left out by choice", together["left_out"]),
        ("full is not above guessing", together["undefined"]),
    ):
        where += f" (without {' and '.join(tasks)}: {why})" if tasks else ""
    if raw and len(raw) < counted:
        where += f" (of full's score in {' and '.join(raw)}, where nobody says what guessing scores)"
    reaches = f"{100 * choices.target:g} % of {whole} {where}"
    sure, possible = point["estimate" if choices.by_mean else "sure"], point["possible"]
    of = f" of {layers}" if layers else ""
    surely = "by the means" if choices.by_mean else "surely"
    said = (
        f"{tuning(sure)}{of} {surely} reaches {reaches}"
        if sure not in (None, FULL)
        else f"nothing smaller than full fine-tuning {surely} reaches {reaches}"
    )
    if possible not in (sure, None) and not choices.by_mean:
        said += f"; it cannot be ruled out that {tuning(possible)}{of} does"
    return f"{said[0].upper()}{said[1:]}."


def _head_only(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The mean share of full's score that the head alone keeps, over every model and task that has both."""
    shares = [
        cell["share"]["estimate"]
        for group in groups
        for cell in group["sizes"][0]["cells"]
        if cell["trainable"] == "last 0" and cell["share"] and cell["share"]["estimate"] is not None
        if group["sizes"][0]["reference_is_full"] and not group["same_runs"]
    ]
    return {"mean_share": sum(shares) / len(shares), "groups": len(shares)} if shares else None


def _above_full(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every k below full whose mean is above full's, with what is known of the difference: does freezing raise quality?"""
    return [
        {
            **{name: group[name] for name in ("model", "task", "layers")},
            **{name: cell[name] for name in ("trainable", "tuned_layers")},
            **{name: cell["difference"].get(name) for name in ("estimate", "low", "high", "p", "p_holm")},
        }
        for group in groups
        for cell in group["sizes"][0]["cells"]
        if cell["difference"]
        and cell["trainable"] != group["sizes"][0]["reference"]
        and group["sizes"][0]["reference_is_full"]
        and cell["difference"]["estimate"] > 0
    ]


def _half_frozen(groups: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many curves are above or below full with half of the layers frozen, and in how many that is sure (Holm)."""
    found = [
        cell["difference"]
        for group in groups
        for cell in group["sizes"][0]["cells"]
        if group["sizes"][0]["reference_is_full"] and cell["trainable"].startswith("last")
        if group["layers"] and 2 * cell["tuned_layers"] == group["layers"] and cell["difference"]
    ]
    sure = [d["estimate"] for d in found if d.get("p_holm") is not None and d["p_holm"] < 0.05]
    return {
        "curves": len(found),
        "above": sum(difference["estimate"] > 0 for difference in found),
        "surely_above": sum(estimate > 0 for estimate in sure),
        "surely_below": sum(estimate < 0 for estimate in sure),
    }


def _failures(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Failures of everything, by how much was trained."""
    ended = [run for group in groups if not group.same_runs for run in _ended(group)]
    kinds: dict[str, list[Run]] = {"head only": [], "some layers": [], "full": [], "named parts": []}
    names = {"last 0": "head only", "all": "full", "named": "named parts"}
    for run in ended:
        kinds[names.get(run["trainable"], "some layers")].append(run)
    return [{"what": kind, **failures(runs)} for kind, runs in kinds.items() if runs]
