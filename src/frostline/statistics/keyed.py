"""Lets results and answers be read by key, too, until every reader uses attributes."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any


class Keyed(Mapping[str, Any]):
    """Attributes of a dataclass by key."""

    def __getitem__(self, name: str) -> Any:
        if name not in iter(self):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter([field.name for field in fields(self)])  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(fields(self))  # type: ignore[arg-type]

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __or__(self, changes: Mapping[str, Any]) -> Any:
        return replace(self, **changes)  # type: ignore[type-var]

    def __ior__(self, changes: Mapping[str, Any]) -> Any:
        for name, value in changes.items():
            self[name] = value
        return self
