"""Settings and policies change while the broker runs: what holds for each queue is found, brought into force at once, and made true of what
is in the queues, in steps.
"""

from __future__ import annotations

from collections.abc import Callable

from ..auth.access import Access, Who, needs
from ..core.amqp.policy import Policy
from ..core.rights import Right
from ..core.settings.address_settings import AddressSettingsRepository, Layers
from ..steps import STEP, Steps
from ..topology import places
from ..topology.amqp.policies import Policies, PolicyChange
from ..topology.amqp.virtual_hosts import VirtualHosts
from ..topology.commanded_settings import CommandedSettings
from ..topology.deletion import Deletion
from ..topology.in_force import InForce
from .dead_lettering import DeadLetterOffice


class Changes:
    def __init__(
        self,
        access: Access,
        commanded: CommandedSettings,
        policies: Policies,
        in_force: InForce,
        virtual_hosts: VirtualHosts,
        deletion: Deletion,
        office: DeadLetterOffice,
    ) -> None:
        self.access = access
        self.commanded = commanded
        self._policies = policies
        self._in_force = in_force
        self._virtual_hosts = virtual_hosts
        self._deletion = deletion
        self._office = office

    @needs(
        (Right.MANAGE, places.policy_set),
        (Right.CONSUME, places.policy_source),
        (Right.SEND, places.policy_target),
        audited=True,
        tells=places.policy_named,
    )
    def set_policy(self, who: Who, policy: Policy) -> Steps[None]:
        """See Policies.with_set. Raises Refused, also where there is no such virtual host."""
        self._virtual_hosts.find(policy.virtual_host)
        return self._in_force.alone(self._change_policies(lambda: self._policies.with_set(policy)))

    @needs((Right.MANAGE, places.policy_cleared), audited=True, tells=places.policy_cleared_named)
    def clear_policy(self, who: Who, virtual_host: str, name: str) -> Steps[None]:
        """See Policies.cleared."""
        return self._in_force.alone(self._change_policies(lambda: self._policies.cleared(virtual_host, name)))

    def _change_policies(self, change: Callable[[], PolicyChange]) -> Steps[None]:
        yield from self.bring(self._in_force.settings.repository, change())

    @needs(
        (Right.MANAGE, places.settings_set),
        (Right.CONSUME, places.settings_source),
        (Right.SEND, places.settings_target),
        audited=True,
        tells=places.settings_told,
    )
    def set_settings(self, who: Who, layers: Layers) -> Steps[None]:
        """Commands have set these, and no others, from now on. Raises Refused, and then nothing has changed. Within ``alone``."""
        return self._command(layers)

    @needs((Right.MANAGE, places.settings_set), audited=True, tells=places.settings_told)
    def unset_settings(self, who: Who, layers: Layers) -> Steps[None]:
        """As ``set_settings``, where some were taken back: they lead no dead letters anywhere."""
        return self._command(layers)

    def _command(self, layers: Layers) -> Steps[None]:
        return self.bring(self.commanded.laid_over(layers), then=lambda: self.commanded.keep(layers))

    def bring(
        self,
        settings: AddressSettingsRepository,
        policies: PolicyChange | None = None,
        check: Callable[[], None] = lambda: None,
        then: Callable[[], None] = lambda: None,
    ) -> Steps[None]:
        """Other settings, or policies: due times already given stay; limits trim in bounded steps; parked messages look again.

        All of it holds at once, when it is known what that is; ``check`` is called before, ``then`` behind it. Raises Refused, also where
        ``check`` does, and then nothing has changed. One at a time: see ``InForce.alone``.
        """
        if policies is not None:
            yield from policies.look()
        policy_of = self._policies.for_queue if policies is None else policies.for_queue
        found = yield from self._in_force.find(settings, policy_of)
        check()
        changed = self._in_force.bring(found, settings, policy_of)
        if policies is not None:
            policies.take()
        then()
        self._virtual_hosts.settings_changed()
        for number, (queue, expires_ms) in enumerate(changed, 1):
            self._deletion.held_otherwise(queue, expires_ms)
            self._office.trim_later(queue)
            if number % STEP == 0:
                yield
        self._office.retry_parked()
