"""Address settings that commands have laid over the file's, kept in the journal."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, cast

from homing.journal.declarations import DeclarationRecord, SettingsLayer

from ..core.settings.address_settings import AddressSettingsRepository, Layers, Values, plain, read_setting
from ..core.settings.units import known_duration_ms
from ..core.settings.values import SettingError
from ..core.settings.wildcard import pattern_problem
from ..recording.journal_port import JournalPort

log = logging.getLogger("homing")

KIND: Final = "settings"


class CommandedSettings:
    def __init__(self, journal: JournalPort, configured: AddressSettingsRepository) -> None:
        self._journal = journal
        #: Of broker.yaml.
        self.configured = configured
        self.layers: Layers = {}

    def laid_over(self, layers: Layers) -> AddressSettingsRepository:
        """What were in force with these, and no others."""
        return self.configured.laid_over(layers)

    def over(self, configured: AddressSettingsRepository) -> AddressSettingsRepository:
        """What is in force over those of a file."""
        return configured.laid_over(self.layers) if self.layers else configured

    def keep(self, layers: Layers) -> None:
        """These from now on; what has changed goes into the journal."""
        for pattern in self.layers.keys() - layers.keys():
            self._journal.batch.delete_declaration(KIND, pattern)
        for pattern, layer in layers.items():
            if self.layers.get(pattern) != layer:
                self._journal.batch.declare(DeclarationRecord(KIND, pattern, {name: plain(value) for name, value in layer.items()}))
        self.layers = layers

    def restore(self, declarations: Iterable[DeclarationRecord]) -> None:
        """What the journal kept."""
        self.layers = read_layers(declarations)


def read_layers(declarations: Iterable[DeclarationRecord]) -> Layers:
    """A setting that is not understood any more is logged and left out."""
    layers: dict[str, Values] = {}
    for record in declarations:
        if record.kind != KIND or pattern_problem(record.name):
            continue
        layer = layers[record.name] = {}
        for name, value in cast(SettingsLayer, record.content).items():
            try:
                field, read = read_setting(name, known_duration_ms(value) if name.endswith("_ms") else value)
            except SettingError as error:
                log.error(
                    'declaration-unreadable: setting %s of "%s" in the journal is not understood any more (%s)',
                    name,
                    record.name,
                    error,
                )
            else:
                layer[field] = read
    return layers
