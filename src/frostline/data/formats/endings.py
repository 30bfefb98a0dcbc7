"""The table formats and the endings of their files. Imports nothing, so that ``--help`` can list them quickly."""

ENDINGS = {
    "CSV": (".csv",),
    "TSV": (".tsv", ".txt"),
    "JSON lines": (".jsonl", ".ndjson", ".json"),
    "Parquet": (".parquet",),
    "CoNLL": (".conll", ".bio", ".iob2", ".conllu"),
}
TABLES = tuple(name for name in ENDINGS if name != "CoNLL")  # formats with columns of any kind
FORMAT_OF = {ending: name for name, endings in ENDINGS.items() for ending in endings}


def either(*names: str) -> str:
    """Several names in a sentence: ``CSV, TSV or Parquet``."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
