"""`frostline report`: rebuild the report of a sweep."""

import json

from frostline.cli.flags import FolderArgument
from frostline.cli.printing import print_damage, wrapped
from frostline.cli.program import PanelCommand, app


@app.command(cls=PanelCommand, short_help="Rebuild the tables, answer and report of a sweep.")
def report(folder: FolderArgument) -> None:
    """Rebuild the tables, answer.json and report.html from the runs in a folder."""
    from frostline.report.rebuild import write_report
    from frostline.sweep.results.folder import Folder

    print_damage(Folder(folder).out)
    path = write_report(folder)
    print(*wrapped(json.loads((folder / "answer.json").read_text())["sentence"]), sep="\n")
    print(path)
