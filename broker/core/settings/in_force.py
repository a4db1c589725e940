"""The address settings that are in force: those of the file with what commands have laid over them, exchanged as one."""

from __future__ import annotations

from .address_settings import AddressSettings, AddressSettingsRepository


class SettingsInForce:
    def __init__(self, repository: AddressSettingsRepository) -> None:
        #: What holds now; whoever brings other settings into force puts them here.
        self.repository = repository

    def resolve(self, address: str) -> AddressSettings:
        """See AddressSettingsRepository."""
        return self.repository.resolve(address)
