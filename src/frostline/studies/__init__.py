"""Published protocols as sweeps: a TOML file each, what they printed beside it, and their models' configurations."""

from frostline.studies.protocol import Protocol, load_protocol, protocol_names

__all__ = ["Protocol", "load_protocol", "protocol_names"]
