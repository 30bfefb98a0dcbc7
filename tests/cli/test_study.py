"""`frostline study`."""

from pathlib import Path

from tiny import FAST, Frostline


def test_plan_of_a_study_prints_the_published_counts(frostline: Frostline) -> None:
    got = frostline("study", "jeong2025", "--plan")
    assert got.code == 0 and "klue-bert-base: 12 layers, 110,618,882 parameters" in got.out
    assert "1,538" in got.out and "85,056,002" in got.out
    assert "bert-large: 24 layers" in frostline("study", "lee2019", "--plan").out
    parts = frostline("study", "amazon-tutorial", "--plan", "--tune-modules", "encoder.layer.10,pooler")
    assert parts.code == 0 and "named" in parts.out


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


def test_the_plan_of_a_study_prints_every_group_without_weights(frostline: Frostline) -> None:
    got = frostline("study", "amazon-tutorial", "--plan")
    assert got.code == 0 and "google-bert/bert-base-uncased" in got.out
    assert "tune named: 14,767,874 of 109,483,778 parameters are trained" in got.out
    assert "layer 10 .. 11" in got.out and "layer 0 .. 9" in got.out and "bert.embeddings" in got.out
    wrong = frostline("study", "amazon-tutorial", "--plan", "--tune-modules", "encoder.layer.12")
    assert wrong.code == 2 and "the 12 layers are bert.encoder.layer.0 to bert.encoder.layer.11" in wrong.err
