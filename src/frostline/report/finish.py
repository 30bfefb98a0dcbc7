"""The steps after the last run of a sweep: tables, answer, saved model and page."""

from typing import Any

from frostline.report.rebuild import rebuild
from frostline.report.recommended_model import save_recommended
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress


def finish(prepared: Prepared, progress: Progress, *, save_model: bool = True) -> dict[str, Any]:
    """Write tables, answer, model and report after the last run, and return the answer."""
    from frostline.report.pages.sweep import write_page

    out = prepared.store.out
    answer = rebuild(out)
    if save_model:
        progress.begin("saving the model")
        save_recommended(prepared, answer, progress)
    progress.begin("writing the report")
    write_page(out)
    return answer
