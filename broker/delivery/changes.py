"""Settings and policies change while the broker runs: what holds for each queue is found, brought into force at once, and made true of what
is in the queues, in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..auth.access import Access, Told, Who, needs, pattern_place
from ..core.amqp.policy import Policy
from ..core.amqp.vhost import prefix_of
from ..core.rights import Place, Right
from ..core.settings.address_settings import AddressSettingsRepository, Layer, Layers
from ..core.settings.wildcard import ANY_WORDS
from ..steps import STEP, Steps
from ..topology.amqp.policies import Policies, PolicyChange
from ..topology.amqp.virtual_hosts import VirtualHosts
from ..topology.commanded_settings import CommandedSettings
from ..topology.deletion import Deletion
from ..topology.in_force import InForce
from ..topology.places import DEAD_LETTERS_GO, address_place, at_virtual_host, exchange_places
from .dead_lettering import DeadLetterOffice


def _policy_set(policy: Policy) -> Iterable[Place]:
    return at_virtual_host(policy.virtual_host)


def _policy_source(policy: Policy) -> Iterable[Place]:
    """A policy that sends messages on: what it would take to do that by hand."""
    leads_on = policy.definition.keys() & {"dead-letter-exchange", "alternate-exchange"}
    return at_virtual_host(policy.virtual_host) if leads_on else ()


def _policy_target(policy: Policy) -> Iterable[Place]:
    prefix, said = prefix_of(policy.virtual_host), policy.definition
    if "dead-letter-exchange" in said:
        yield from exchange_places(prefix, str(said["dead-letter-exchange"]), (str(said.get("dead-letter-routing-key", ANY_WORDS)),))
    if "alternate-exchange" in said:
        yield from exchange_places(prefix, str(said["alternate-exchange"]), (ANY_WORDS,))


def _changed(owner: Changes, layers: Layers) -> Iterable[str]:
    before = owner.commanded.layers
    return [pattern for pattern in before.keys() | layers.keys() if before.get(pattern) != layers.get(pattern)]


def _leading_on(owner: Changes, layers: Layers) -> Iterator[tuple[str, str]]:
    """Patterns with the addresses that dead letters go to now and did not before."""
    for pattern in _changed(owner, layers):
        before = _led_to(owner.commanded.layers.get(pattern, {}))
        yield from ((pattern, target) for _, target in sorted(_led_to(layers.get(pattern, {})) - before))


def _led_to(layer: Layer) -> set[tuple[str, str]]:
    """(setting, address) of each."""
    named = {(name, layer[name]) for name in DEAD_LETTERS_GO if layer.get(name) is not None}
    return named | {("rules", address) for rule in layer.get("rules", ()) if (address := rule.dead_letter_address)}


def _settings_set(owner: Changes, layers: Layers) -> Iterable[Place]:
    return map(pattern_place, _changed(owner, layers))


def _settings_told(owner: Changes, layers: Layers) -> Told:
    """What is another than before, by pattern; None: no command sets it any more."""
    before = owner.commanded.layers
    told = list[str]()
    for pattern in _changed(owner, layers):
        old, new = before.get(pattern, {}), layers.get(pattern, {})
        names = [name for name in (*new, *(old.keys() - new)) if old.get(name) != new.get(name)]
        told.append(f"{pattern}: " + " ".join(f"{name}={new.get(name)}" for name in names))
    return {"settings": "; ".join(told)}


def _settings_source(owner: Changes, layers: Layers) -> Iterable[Place]:
    return (pattern_place(pattern) for pattern, _ in _leading_on(owner, layers))


def _settings_target(owner: Changes, layers: Layers) -> Iterable[Place]:
    return (address_place(target) for _, target in _leading_on(owner, layers))


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
        (Right.MANAGE, _policy_set),
        (Right.CONSUME, _policy_source),
        (Right.SEND, _policy_target),
        audited=True,
        tells=lambda policy: {"policy": policy.name},
    )
    def set_policy(self, who: Who, policy: Policy) -> Steps[None]:
        """See Policies.with_set. Raises Refused, also where there is no such virtual host."""
        self._virtual_hosts.find(policy.virtual_host)
        return self._in_force.alone(self._change_policies(lambda: self._policies.with_set(policy)))

    @needs((Right.MANAGE, at_virtual_host), audited=True, tells=lambda name: {"policy": name})
    def clear_policy(self, who: Who, virtual_host: str, name: str) -> Steps[None]:
        """See Policies.cleared."""
        return self._in_force.alone(self._change_policies(lambda: self._policies.cleared(virtual_host, name)))

    def _change_policies(self, change: Callable[[], PolicyChange]) -> Steps[None]:
        yield from self.bring(self._in_force.settings.repository, change())

    @needs(
        (Right.MANAGE, _settings_set),
        (Right.CONSUME, _settings_source),
        (Right.SEND, _settings_target),
        audited=True,
        tells=_settings_told,
    )
    def set_settings(self, who: Who, layers: Layers) -> Steps[None]:
        """Commands have set these, and no others, from now on. Raises Refused, and then nothing has changed. Within ``alone``."""
        return self._command(layers)

    @needs((Right.MANAGE, _settings_set), audited=True, tells=_settings_told)
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
