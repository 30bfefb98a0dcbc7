"""The steps after the last run of a sweep: tables, answer, saved model and page."""

from frostline.data.files import ELSEWHERE, locked
from frostline.report.rebuild import rebuild
from frostline.report.recommended_model import save_recommended
from frostline.statistics.answer import Answer
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress
from frostline.training.probes.alternatives import Alternatives


def finish(
    prepared: Prepared,
    progress: Progress,
    *,
    save_model: bool = True,
    alternatives: Alternatives | None = None,
    interrupted: bool = False,
) -> Answer:
    """Write tables, answer, model and report after the last run, and return the answer.

    Args:
        prepared: The sweep.
        progress: Where progress is reported.
        save_model: Whether to save the recommended model.
        alternatives: The models that train no layer, one of which may be recommended; None if the sweep is no search.
        interrupted: Whether more runs will follow. The recommended model is then saved only if no run is trained again for it.
    """
    from frostline.report.pages.sweep import write_page

    out = prepared.store.out
    # Other processes may have trained runs of this sweep, and end now, too.
    with locked(out / ".finish.lock", ELSEWHERE, inside=out):
        answer = rebuild(out)
        if save_model:
            progress.begin("saving the model")
            save_recommended(prepared, answer, progress, alternatives, interrupted=interrupted)
        progress.begin("writing the report")
        write_page(out)
    return answer
