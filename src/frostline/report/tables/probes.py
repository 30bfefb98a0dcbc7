"""The table of linear probes on frozen features."""

from frostline.report import formatting
from frostline.report.names import baseline
from frostline.report.names import metric as name_of_metric
from frostline.report.probe_sentence import ProbeFacts
from frostline.report.tables.table import Column, ReportTable, Row


def probe_table(facts: ProbeFacts, suffix: str = "") -> ReportTable:
    """A row for every probe."""
    metric = name_of_metric(facts["metric"])
    best = (facts["best"]["layers"], facts["best"]["vector"])
    rows = [
        Row(
            {**probe, "layers": formatting.layers(probe["layers"]), "place": n},
            tags=("best on held-out training examples",) * ((probe["layers"], probe["vector"]) == best),
            chosen=(probe["layers"], probe["vector"]) == best,
        )
        for n, probe in enumerate(facts["probes"])
    ]
    columns = (
        Column("layers", "after layer", rank=lambda row: row["place"]),
        Column("vector", "token", number=False),
        Column("held_out", f"{metric}, held-out\ntraining examples", formatting.score),
        Column("validation", f"{metric},\nvalidation", formatting.score, strong=True),
        Column("penalty", "penalty per\nexample", lambda penalty: f"{penalty:.2g}"),
    )
    tfidf = "." if facts["tfidf_score"] is None else f", TF-IDF model {facts['tfidf_score']:.3f}."
    read = "the first token of each word" if facts["best"]["vector"] == "word" else "one vector of each example"
    caption = (
        f"A {facts['kind']} probe on {read} after each layer (0: the embeddings), {facts['train_rows']:,} "
        f"training and {facts['validation_rows']:,} validation examples. "
        f"{baseline(facts['metric']).capitalize()} {facts['chance']:.3f}{tfidf}"
    )
    return ReportTable(f"probes{suffix}", "Probes", caption, columns, tuple(rows))
