"""The address settings that are in force: those of the file with what commands have laid over them, exchanged as one."""

from __future__ import annotations

from ..routing import PostOffice
from .address_settings import AddressSettings, AddressSettingsRepository


class SettingsInForce:
    def __init__(self, post_office: PostOffice, repository: AddressSettingsRepository) -> None:
        self._post_office = post_office
        #: What holds now; whoever brings other settings into force puts them here.
        self.repository = repository

    def resolve(self, address: str) -> AddressSettings:
        """See AddressSettingsRepository."""
        return self.repository.resolve(address)

    def of_queue(self, name: str, address: str) -> AddressSettings:
        """What holds for a queue; where it is gone, what its address's settings say."""
        queue = self._post_office.queues.get(name)
        return self.repository.resolve(address) if queue is None else queue.settings
