"""The page of an analysis: what many results say together, in OUT/report.html with tables and figures beside it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from frostline.report import formatting
from frostline.report.figures.curves import cost_curve, validation_curve
from frostline.report.figures.drawing import save_figures, svg
from frostline.report.figures.fronts import pareto_fronts
from frostline.report.figures.panels import learning_curves, relative_change, train_beside_validation
from frostline.report.pages.templates import render
from frostline.report.tables import curve as curvetables
from frostline.report.tables import overview, rules
from frostline.report.tables.table import Table, save_tables
from frostline.statistics.curve import main_point
from frostline.sweep.results.store import file_name, replace, write_facts

Analysis = Mapping[str, Any]
MANY = 6  # curves; of more than these only the small figures are drawn, so that the page stays light


def write_analysis(
    out: str | Path,
    analysis: Analysis,
    *,
    title: str,
    publication: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    folders: Mapping[tuple[str, str], Path | None] | None = None,
) -> Path:
    """Write ``out``/report.html, analysis.json, tables/ and figures/; gives the page's path.

    ``publication``: title, source, what it asks, contradictions and differences of a published study; ``rows``: its
    numbers with what was measured, from :func:`frostline.studies.comparison.beside`; ``folders``: where the sweep of a model on
    a task has its own page, with the audit of its runs, its data and its settings.
    """
    out, analysis = Path(out), {**analysis, "groups": _with_suffixes(analysis["groups"])}
    pages = {key: folder / "report.html" for key, folder in (folders or {}).items() if folder}
    links = {key: os.path.relpath(page, out) for key, page in pages.items() if page.exists()}
    groups = [{**_group(group), "link": links.get((group["model"], group["task"]))} for group in analysis["groups"]]
    figures = _figures(analysis)
    tables = _tables(analysis, rows)
    svgs = {name: svg(figure, name) for name, figure in figures.items()}
    text = render(
        "analysis.html.j2",
        title=title,
        analysis=analysis,
        groups=groups,
        tables=tables,
        figures={name: Markup(text) for name, text in svgs.items()},
        publication=publication,
        said=choices_in_words(analysis),
    )
    save_figures(out, figures, svgs)
    of_groups = (table for group in groups for table in group["tables"])
    save_tables(out, [*(table for table in tables.values() if table), *of_groups])
    plain = {**analysis, "groups": [{k: v for k, v in group.items() if k != "suffix"} for group in analysis["groups"]]}
    write_facts(out / "analysis.json", plain)
    replace(out / "report.html", text.encode())
    return out / "report.html"


def choices_in_words(analysis: Analysis) -> list[str]:
    """Every choice that can make a headline, as a sentence."""
    choices = analysis["choices"]
    unknown = list(dict.fromkeys(group["task"] for group in analysis["groups"] if group["chance"] is None))
    raw = "Shares are of full’s score as it stands, with no correction for what guessing scores."
    leave_out = " and ".join(choices["leave_out"])
    return [
        "Every k is shown at the learning rate that is best for full."
        if choices["one_rate"]
        else "Every k is shown at its own learning rate, the best of those that were tried; where several were, the choice was "
        "made on the scores that are shown, which flatters them a little.",
        "A run that failed is counted; it is left out of the means where at least half of its cell succeeded."
        if choices["failed_below"] is None
        else f"Runs with at most {formatting.target(choices['failed_below'])} of the best score of their cell, or a score of 0, "
        "are left out of the means.",
        f"Left out where tasks are taken together: {leave_out}." if leave_out else "No task is left out.",
        "A number of layers is enough when its mean reaches the target."
        if choices["by_mean"]
        else "A number of layers is surely enough when its whole 95 % interval reaches the target.",
        "Shares are of full’s gain over guessing." if choices["corrected"] else raw,
        *(
            [f"What guessing scores is not known of {', '.join(unknown)}: shares there are of full’s score."]
            if unknown
            else []
        ),
    ]


def _with_suffixes(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The groups, each with what sets the names of its tables and figures apart; names that look alike as files are numbered."""
    taken: dict[str, int] = {}
    found = []
    for group in groups:
        suffix = f"_{file_name(group['model'])}_{file_name(group['task'])}"
        taken[suffix.lower()] = taken.get(suffix.lower(), 0) + 1
        number = taken[suffix.lower()]
        found.append({**group, "suffix": suffix if number == 1 else f"{suffix}-{number}"})
    return found


def _suffix(group: Mapping[str, Any], size: Mapping[str, Any] | None = None) -> str:
    """What sets the names of a group's tables and figures apart, or those of one of its train sizes."""
    n = size and size["train_size"]
    return f"{group['suffix']}_{n}" if n else str(group["suffix"])


def _figures(analysis: Analysis) -> dict[str, Figure]:
    """Every figure of the page, by name; ``_narrow`` is what a phone shows."""
    found: dict[str, Figure | None] = {
        "relative_change": relative_change(analysis["groups"]),
        "relative_change_narrow": relative_change(analysis["groups"], columns=1),
    }
    for group in analysis["groups"]:
        for size in group["sizes"]:
            if len(size["cells"]) < 2:
                continue
            for narrow in (False, True) if len(analysis["groups"]) <= MANY else (True,):
                end = "_narrow" if narrow else ""
                shown = {"metric": group["metric"], "chance": group["chance"], "narrow": narrow}
                found[f"validation_curve{_suffix(group, size)}{end}"] = validation_curve(size, **shown)
                if _has_costs(size):
                    front = pareto_fronts(size, metric=group["metric"], narrow=narrow)
                    found[f"pareto_fronts{_suffix(group, size)}{end}"] = front
            if _has_costs(size):
                found[f"cost_curve{_suffix(group, size)}"] = cost_curve(size)
        if group["learning"]:
            found[f"learning_curves{_suffix(group)}"] = learning_curves(group)
        found[f"train_and_validation{_suffix(group)}"] = train_beside_validation(group)
    known = {name: figure for name, figure in found.items() if figure is not None}
    return {name if (wide := name.removesuffix("_narrow")) in known else wide: figure for name, figure in known.items()}


def _has_costs(size: Mapping[str, Any]) -> bool:
    return any(cell["seconds"] is not None for cell in size["cells"])


def _tables(analysis: Analysis, rows: Sequence[Mapping[str, Any]]) -> dict[str, Table | None]:
    """The tables that are of everything."""
    several = [model for model in analysis["models"] if model["tasks"]]
    return {
        "answers": overview.answers(analysis),
        "published": overview.published(rows) if rows else None,
        "points": overview.points_over_tasks(analysis) if several else None,
        **{
            f"tasks{n}": overview.over_tasks(model, analysis, f"_{file_name(model['model'])}")
            for n, model in enumerate(several)
        },
        "above": overview.above_full(analysis) if analysis["above_full"] else None,
        "failures": overview.failures(analysis),
    }


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    """A model on a task, with its tables."""
    suffix = _suffix(group)
    learning = overview.pays(group, suffix) if group["learning"] else None
    sizes = [_size(size, group) for size in group["sizes"]]
    rates = overview.rates(group, suffix)
    own = [learning] if learning else []
    tables = [table for size in sizes for table in size["tables"]] + own + [rates]
    return {
        **group,
        "suffix": suffix,
        "sizes": sizes,
        "learning_table": learning,
        "rates_table": rates,
        "tables": tables,
    }


def _size(size: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
    suffix, metric = _suffix(group, size), formatting.metric(group["metric"])
    examples = f", {size['train_size']:,} examples" if size["train_size"] else ""
    size = {**size, "about": f"{group['task']}, {group['model']}{examples}"}
    main = main_point(size)
    tables = [
        curvetables.scores(size, metric, suffix=suffix),
        curvetables.shares(size, metric, suffix=suffix),
        *([curvetables.costs(size, suffix=suffix)] if _has_costs(size) else []),
        curvetables.failures(size, suffix=suffix),
        curvetables.points(size, main, suffix=suffix),
    ]
    return {**size, "suffix": suffix, "tables": tables, "rules": rules.others(size, main)}
