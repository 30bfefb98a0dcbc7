"""`frostline study`."""

from pathlib import Path

from tiny import FAST, Frostline


def test_a_study_is_compared_with_its_published_numbers(frostline: Frostline, desk: Path) -> None:
    words = ["study", "lowdata2021", "--model", "m", "--task", "SST-2", "--data", "SST-2=sst2", "--out", "low"]
    words += [*FAST, "--tune", "0,all", "--seeds", "2", "--train-size", "50", "--max-length", "32"]
    shown = frostline(*words, "--plan")
    assert shown.code == 0 and "m on SST-2, in low/m/SST-2" in shown.out and "subset = fixed" in shown.out
    assert not (desk / "low").exists()
    got = frostline(*words)
    assert got.code == 0 and "SST-2, m: " in got.out
    page = (desk / "low" / "report.html").read_text()
    assert "Contradictions in the publication" in page
    assert "0.705" in page  # the published score of full with 50 examples
    assert all((desk / "low" / name).exists() for name in ("as-published/report.html", "m/SST-2/sweep.toml"))
    again = frostline(*words)
    assert again.code == 0 and again.out == got.out
