"""A search over several models: which of them takes the next step, on synthetic scores, and the whole on tiny models."""

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import frostline
from frostline.data.wording import spoken
from frostline.search.observations import Candidate
from frostline.search.policy import Batch, policy
from frostline.search.several_models import Contender, SearchOverModels, _below
from frostline.statistics.run_result import PROBE, Alternative
from frostline.sweeps.inputs import models_to_search
from frostline.sweeps.progress import Progress
from synthetic_search import RISING, Rows, curve, exact, nothing_seen
from tiny import Notes, tiny_bert_folder

Scores = Callable[[Candidate], float | None]


class SyntheticSearch:
    """The part of a search that a search over several models uses, with synthetic scores."""

    has_runs = False

    def __init__(self, score: Scores, probe: float | None, budget: float | None = None) -> None:
        self.rows, self.score = Rows(same_errors=True), score
        self.seen = nothing_seen(self.rows, budget_given=budget)
        ends = (None, None) if probe is None else (probe - 0.03, probe + 0.03)
        probes = SimpleNamespace(best=SimpleNamespace(validation=probe), low=ends[0], high=ends[1])
        self.alternatives = SimpleNamespace(probes=probes)

    def begin(self) -> None: ...

    def report_progress(self) -> None: ...

    def train(self, batch: Batch) -> None:
        self.seen.batches.append(batch.candidates)
        self.seen.known |= {one: self.rows.observe(one, self.score(one)) for one in batch.candidates}


def searched(*models: tuple[Scores, float | None], budget: float | None = None, costs: float = 0.0) -> list[Contender]:
    """Search over models with these scores and probes; ``costs``: of predictions with the second one."""
    found = [
        Contender(f"model {n}", SyntheticSearch(score, probe, budget), 1.0, costs * (n == 1))  # type: ignore[arg-type]
        for n, (score, probe) in enumerate(models)
    ]
    over = SearchOverModels(found, Path(), Progress())
    while (step := over._next()) is not None:
        one, batch = step
        one.search.train(batch)
    return found


def moved(points: float) -> Scores:
    """Scores of a rising curve, higher by so many points."""
    score = exact(RISING)
    return lambda one: round(score(one) + points / 100, 4)


def trained(one: Contender) -> int:
    return len(one.search.seen.known)


def test_a_model_with_a_far_worse_probe_gets_no_run() -> None:
    good, bad = searched((moved(0), 0.74), (moved(-25), 0.50))
    assert trained(good) > 8 and trained(bad) == 0
    assert (
        bad.stop is not None
        and bad.stop.no_reference
        and "linear probe scores 0.500, that of model 0 0.740" in bad.stop.why
    )


def test_the_better_model_wins_although_its_probe_is_a_little_worse() -> None:
    first, second = searched((moved(0), 0.74), (moved(5), 0.72))
    assert second.value is not None and first.value is not None and second.value > first.value + 0.03
    assert trained(second) > trained(first)


def test_a_model_that_falls_behind_at_the_same_k_is_left_out_before_its_reference() -> None:
    """Full fine-tuning is the dearest run of all."""
    first, second = searched((moved(0), 0.74), (moved(-8), 0.74))
    ran = Counter(one.recipe.k for one in second.search.seen.known)
    assert ran[0] and ran[2] and not ran[None] and second.stop is not None
    assert "It scores 0.680 where model 0, with as many of its layers, should score" in second.stop.why
    assert second.value == pytest.approx(0.68 - 0.02 * 2 / 6)  # a third of the layers has its price
    third_of_layers, rows = 0.04 - 0.02 / 3, 0.06 / 3.92
    assert second.behind(first)[1] == pytest.approx(math.hypot(third_of_layers, rows))


def test_near_the_highest_score_another_model_is_not_worth_its_time() -> None:
    """A probe leaves open whether it is four points better, but with .9975 for the first model nothing is."""
    high, low = (searched(*2 * [(exact(curve(top - 0.01, *[top] * 7)), 0.7)]) for top in (0.9975, 0.7975))
    assert high[1].search.seen.spent < 0.3 * low[1].search.seen.spent
    assert "should score" in high[1].stop.why and "on average, less than their time is worth" in high[1].stop.why
    found = searched(*2 * [(exact(curve(0.9, *[1.0] * 7)), 0.7)])
    expected = [one.expected(k / 6) for one in found for k in range(7)]
    assert max(one or 0.0 for one in expected) <= 1.0


def test_dear_predictions_count_against_a_model() -> None:
    """Five points better, but six points dearer."""
    first, second = searched((moved(0), 0.74), (moved(5), 0.74), costs=0.06)
    assert first.value is not None and (second.value is None or first.value > second.value)
    alike = [Contender("model", SyntheticSearch(moved(0), 0.74), inference, 0.1) for inference in (1.0, 3.0)]  # type: ignore[arg-type]
    assert [one.behind(alike[0])[0] for one in alike] == pytest.approx([0.0, 0.2])


def test_all_models_share_one_budget() -> None:
    for budget in (60.0, 250.0):
        found = searched((moved(0), 0.74), (moved(0.5), 0.74), (moved(1), 0.74), budget=budget)
        longest = max(found[0].search.seen.run_seconds(one) for one in found[0].search.seen.space.recipes)
        assert sum(one.search.seen.spent for one in found) <= budget + longest
        enough = [one.stop.enough for one in found if one.stop and one.stop.enough is not None]
        assert bool(enough) == (budget == 60) and all(one > budget for one in enough)


def test_one_model_alone_takes_the_steps_of_its_own_search() -> None:
    (alone,) = searched((moved(0), None))
    other = SyntheticSearch(moved(0), None)
    for batch in policy(other.seen):
        other.train(batch)
    assert alone.search.seen.batches == other.seen.batches


def test_a_search_over_two_models_is_one_answer_and_is_continued(
    search_settings: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    other = tiny_bert_folder(tmp_path / "other", layers=2, seed=1)
    settings = {**search_settings, "model": [search_settings["model"], other], "price_inference": 1.0}
    found = frostline.find(**settings)
    answer, out = found.answer, search_settings["out"]
    assert {one.model for one in answer.models} == {"other", search_settings["model"].name}
    best, models = answer.model(answer.recommended), {one.layers: one for one in answer.models}
    assert best is not None and best.below == 0.0 and best.model in answer.sentence
    assert models[3].parameters > models[2].parameters and answer.price == 0.02 and answer.price_inference == 0.01
    assert frostline.open(out).answer == answer and repr(answer.sentence.split(". ")[0])[1:-1] in repr(
        frostline.open(out)
    )
    assert found.model_folder == out / "model" and len(found.predict(["a good film"]).labels) == 1
    page = (out / "report.html").read_text(encoding="utf-8")
    assert all(f'href="{name}/report.html"' in page for name in found.models) and answer.sentence[:30] in page
    runs = sum(one.runs for one in answer.models)
    assert len(found.table()) == runs and {*found.table()["model"]} <= {str(one) for one in settings["model"]}
    before = found.table()
    again = frostline.find(**settings)
    assert again.answer == answer and again.table().equals(before)  # no run was trained again: its seconds are the same
    with pytest.raises(frostline.FrostlineError, match="the results of several models"):
        found.more(seeds=3)
    run = request.getfixturevalue("frostline")
    shown, written = run("status", out), (out / best.folder / "answer.json").read_bytes()
    assert all(
        f"{out / one.folder}: {one.runs} done, 0 ended in an error, 0 pending" in shown.out
        for one in answer.models
        if one.runs
    )
    assert found.sentence in " ".join(run("report", out).out.split())
    assert (out / best.folder / "answer.json").read_bytes() == written
    found.models[best.model].more(tune="0", seeds=[7], save_model=False)
    since = f"Runs or settings of {best.model} have changed since this answer was written"
    since += ", and the same search takes them into account."
    assert found.sentence == f"{since} {spoken(answer.sentence)}" and since[:-1] in repr(found)
    assert since in " ".join(run("report", out).out.split())
    whole = frostline.find(**settings)
    assert not whole.sentence.startswith("Runs or") and sum(one.runs for one in whole.answer.models) == runs + 1


def test_models_are_trained_for_longer_where_the_best_one_has_not_fitted_its_examples(
    search_settings: dict[str, Any], tmp_path: Path
) -> None:
    other, notes = tiny_bert_folder(tmp_path / "other", layers=2, seed=1), Notes()
    slow = {"num_train_epochs": "auto", "train_size": 40, "per_device_train_batch_size": 2, "seeds": 1}
    models = [search_settings["model"], other]
    given = {**search_settings, **slow, "model": models, "learning_rate": 1e-6, "progress": notes}
    given["only"] = "transformers"  # a probe learns all there is
    answer = frostline.find(**given).answer
    assert sum(text.endswith("The search goes on with 10 epochs, too.") for text in notes.notes) == 1
    best = answer.model(answer.recommended)
    assert best is not None
    runs = frostline.open(search_settings["out"] / best.folder).table()
    assert {*runs["num_train_epochs"]} == {3.0, 10.0}
    assert best.seconds > runs["train_seconds"].sum()  # with those for three epochs
    notes.notes.clear()
    again = frostline.find(**given).answer
    again.made_from = answer.made_from  # the record of the search has other steps
    assert again == answer and not any(text.startswith("The search goes on") for text in notes.notes)


def test_points_below_do_not_count_errors_on_the_same_rows() -> None:
    """Two models with equal predictions differ by nothing, however few the rows are."""
    first, second = searched((moved(0), 0.74), (moved(0), 0.74))
    name = "full"
    for one, expected in ((second, 0.80), (first, 0.82)):
        decision: Any = SimpleNamespace(choice=name, expected=expected)
        one.answer = SimpleNamespace(decision=decision)  # type: ignore[assignment]
    below, low, high = _below(second, first)
    assert below == pytest.approx(2.0) and low is not None and high is not None and low < below < high
    own = second.option(name)
    assert own is not None and high - low < 2 * 1.96 * 2**0.5 * 100 * float(own.draws.std())
    assert second.runs(name) and not isinstance(second.runs(name)[0], Alternative)


def test_a_posterior_surer_than_the_rows_leaves_no_certain_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rows cause in both models is then taken off as far as it is left in both posteriors, and not more."""
    pair, widths, option = searched((moved(0), 0.74), (moved(0.5), 0.74)), list[float](), Contender.option
    for one in pair:
        one.answer = SimpleNamespace(decision=SimpleNamespace(choice="full", expected=0.8))  # type: ignore[assignment]
    for scale in (0.3, 0.1):

        def surer(own: Contender, choice: str, scale: float = scale) -> Any:
            found = option(own, choice)
            return found and replace(found, draws=found.draws * scale)

        monkeypatch.setattr(Contender, "option", surer)
        _, low, high = _below(*pair)
        assert low is not None and high is not None
        widths.append(high - low)
    assert widths[1] > 0 and widths[0] == pytest.approx(3 * widths[1])


def test_probes_of_two_models_differ_by_their_rows_before_any_run() -> None:
    """As where both models are good enough without training, or one was left out early: nothing else is known then."""
    searches = [SyntheticSearch(moved(0), 0.8) for _ in range(2)]
    found = [Contender(name, search, 1.0) for name, search in zip("ab", searches, strict=True)]  # type: ignore[arg-type]
    for one, score, seed in zip(found, (0.80, 0.86), (1, 2), strict=True):
        one.search.rows.logits[PROBE] = one.search.rows.logits_with(score, seed)  # type: ignore[attr-defined]
        one.search.seen.alternatives = (PROBE,)
        one.answer = SimpleNamespace(decision=SimpleNamespace(choice=PROBE, expected=score))  # type: ignore[assignment]
    below, low, high = _below(*found)
    right = [one.search.rows.logits[PROBE].argmax(1) == one.search.rows.targets for one in found]  # type: ignore[attr-defined]
    error = 100 * (right[1].astype(float) - right[0]).std() / 800**0.5
    assert below == pytest.approx(6.0) and low is not None and high is not None
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.2) and (low + high) / 2 == pytest.approx(below)
    found[0].search.seen.alternatives = ()
    assert _below(*found) == (below, None, None)  # one run of no posterior


@pytest.mark.parametrize(
    ("models", "more", "said"),
    [
        ((), (), "model is missing: give --model"),
        (("{bert}", "{bert}"), (), "names {bert} twice"),
        (("{bert}", "nowhere"), (), "nowhere"),
        (("{bert}", "{copy}"), (), "are the same model"),
        (("{bert}", "{other}"), ("--target", "0.9"), "--target is about one model"),
        (("{bert}", "{other}"), ("--processes", "2"), "by one process"),
        (("{bert}", "{other}"), ("--out", "{used}"), "holds the runs of one model"),
        (("{bert}", "{other}"), ("--out", "{mine}"), "has other files, which could be replaced ('model')"),
        (("{bert}",), ("--price-inference", "1"), "is for several models or depths"),
    ],
)
def test_wrong_calls_with_several_models_are_one_sentence(
    frostline: Any,
    tiny_bert: Path,
    tiny_table: Path,
    tmp_path: Path,
    models: tuple[str, ...],
    more: tuple[str, ...],
    said: str,
) -> None:
    places = {"bert": tiny_bert, **{name: tmp_path / name for name in ("copy", "other", "used", "mine")}}
    shutil.copytree(tiny_bert, places["copy"])
    tiny_bert_folder(places["other"], layers=2)
    shutil.copytree(tiny_bert, places["mine"] / "model")
    places["used"].mkdir()
    (places["used"] / "sweep.toml").touch()
    names = ",".join(models).format(**places)
    words: list[Any] = [one.format(**places) for one in more]
    words += [] if "--out" in words else ["--out", tmp_path / "o"]
    result = frostline("find", "--model", names, "--train", tiny_table, *words)
    assert result.code == 2 and said.format(**places) in " ".join(result.err.split())
    assert not [*tmp_path.glob("o/**/runs")]


def test_a_grid_has_a_folder_for_each_model(frostline: Any, tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    other = tiny_bert_folder(tmp_path / "other", layers=2)
    grid = ["--train", tiny_table, "--tune", "0,full", "--seeds", 2]
    alone = frostline("sweep", "--model", other, *grid, "--out", tmp_path / "alone")
    both = frostline("sweep", "--model", f"{tiny_bert},{other}", *grid, "--out", tmp_path / "o")
    assert alone.code == both.code == 0
    ours, theirs = (
        {path.name for path in folder.glob("runs/*")} for folder in (tmp_path / "o" / "other", tmp_path / "alone")
    )
    assert ours == theirs and len(ours) == 4
    models = {one["model"] for one in json.loads((tmp_path / "o" / "analysis.json").read_text())["groups"]}
    assert models == {tiny_bert.name, "other"} and (tmp_path / "o" / "report.html").exists()
    plan = frostline("sweep", "--model", f"{tiny_bert},{other}", *grid, "--plan")
    assert plan.code == 0 and f"{tiny_bert.name}:\n" in plan.out and "other:\n" in plan.out
    search = frostline("find", "--model", f"{tiny_bert},{other}", *grid[:2], "--plan", "--out", tmp_path / "s")
    assert search.code == 0 and "All models share one budget." in search.out
    status = frostline("status", tmp_path / "o")
    assert status.code == 0 and status.out.count(": 4 done, 0 ended in an error, 0 pending") == 2
    report = frostline("report", tmp_path / "o").out.splitlines()
    assert {str(tmp_path / "o" / name / "report.html") for name in models} <= {*report}
    same = tiny_bert_folder(tmp_path / "again" / "other", layers=2, seed=1)
    depths = ["--depth", "1,all", "--tune", "0", "--seeds", 1, "--train", tiny_table, "--out", tmp_path / "p"]
    assert frostline("sweep", "--model", f"{other},{same}", *depths).code == 0
    assert frostline("analyze", tmp_path / "p", "--out", tmp_path / "q").code == 0
    models = {one["model"] for one in json.loads((tmp_path / "q" / "analysis.json").read_text())["groups"]}
    assert models == {path.parent.name for path in (tmp_path / "p").glob("*/sweep.toml")}
    work = frostline("work", tmp_path / "o")
    assert work.code == 2 and "the results of several models" in " ".join(work.err.split())


def test_an_interrupted_search_of_models_answers_and_goes_on(search_settings: dict[str, Any], tmp_path: Path) -> None:
    class Impatient(Progress):
        def result(self, ended: Any) -> None:
            super().result(ended)
            if self.runs_done == 3:
                raise KeyboardInterrupt

    other = tiny_bert_folder(tmp_path / "other", layers=2, seed=1)
    settings = {**search_settings, "model": [search_settings["model"], other]}
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**{**settings, "progress": Impatient()})
    so_far = frostline.open(search_settings["out"])
    assert sum(one.runs for one in so_far.answer.models) >= 1 and so_far.report.exists()
    assert any("interrupted" in one.why for one in so_far.answer.models) and "have changed" not in so_far.sentence

    class Killed(Progress):  # nothing is written after that
        def result(self, ended: Any) -> None:
            raise MemoryError

    with pytest.raises(MemoryError):
        frostline.find(**{**settings, "progress": Killed()})
    assert " have changed since this answer was written" in frostline.open(search_settings["out"]).sentence
    whole = frostline.find(**settings).answer
    assert not any("interrupted" in one.why for one in whole.models)


def test_folders_of_models_are_not_those_of_their_answer(tiny_bert: Path, tmp_path: Path) -> None:
    """The recommended model is copied to ``model``."""
    there = tmp_path / "film" / "model"
    shutil.copytree(tiny_bert, there)
    found = models_to_search({"model": [str(there), str(tiny_bert), "model"], "out": tmp_path / "o"})
    assert [one.out.name for one in found] == ["1-film", f"2-{tiny_bert.name}", "3-model"]
    depths = models_to_search({"model": tiny_bert, "depth": "all,2", "out": "o"})
    assert [(one.depth, one.out.name) for one in depths] == [(None, tiny_bert.name), (2, f"{tiny_bert.name}-2-layers")]
    assert [one.depth for one in models_to_search({"model": tiny_bert, "depth": "auto", "out": "o"})] == [None, 2, 1]
    with pytest.raises(frostline.FrostlineError, match="names a number of layers twice"):
        models_to_search({"model": tiny_bert, "depth": "all,3", "out": "o"})  # it has three
    with pytest.raises(frostline.FrostlineError, match=r"depth cannot be 2\.5"):  # it was 2
        models_to_search({"model": tiny_bert, "depth": 2.5, "out": "o"})
