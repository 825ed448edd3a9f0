"""Shapes written in signatures are checked here too: pytest's option of jaxtyping takes one package, the library."""

from jaxtyping import install_import_hook

install_import_hook("posterity_studies", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
