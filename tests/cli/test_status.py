"""`frostline status`: who trains what."""

import os
import platform
import shutil
from pathlib import Path

from frostline.sweep.results.folder import Folder
from frostline.sweep.results.leases import Leases
from tiny import Frostline


def test_it_shows_who_trains_what_since_when(frostline: Frostline, finished_small: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished_small, tmp_path / "s"))
    run = Folder(out).runs[-1]
    shutil.rmtree(out / "runs" / run.digest)
    before = frostline("status", out).out
    assert before.startswith(f"{out}: 3 done, 0 failed, 1 pending\n") and "sign_of_life" not in before
    with Leases(out) as leases:
        leases.take([[run.digest, "ofanothersweep"]])
        (lease, _) = leases.current()
        *table, header, row = frostline("status", out).out.splitlines()
    assert "\n".join(table) == before and header.split()[-3:] == ["process", "since", "sign_of_life"]
    assert row.startswith("last 1") and row.endswith(
        f"{os.getpid()} on {platform.node()}  {lease.since[:10]} {lease.since[11:]}  lives"
    )


def test_a_dead_process_is_shown_as_dead(frostline: Frostline, finished_small: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished_small, tmp_path / "s"))
    run = Folder(out).runs[-1]
    with Leases(out) as leases:
        leases.take([[run.digest]])
        shutil.copytree(out / "leases", tmp_path / "left")
    shutil.copytree(tmp_path / "left", out / "leases", dirs_exist_ok=True)
    assert frostline("status", out).out.splitlines()[-1].endswith("dead")
    for path in (out / "leases").glob("*.json"):
        path.write_text(path.read_text().replace('"kernel": "', '"kernel": "another '))
    assert frostline("status", out).out.splitlines()[-1].endswith("unknown")
