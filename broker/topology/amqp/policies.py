"""Policies: set by command (and kept in the journal) or by broker.yaml, and what they come to for a queue or an exchange."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from homing.journal.declarations import DeclarationRecord, PolicyContent

from ...core.amqp.declared import AMQP, arguments_of, declared_arguments
from ...core.amqp.keys import key_of
from ...core.amqp.policy import DURATIONS, EXCHANGES, QUEUES, Policy, PolicyError, best, read_policy
from ...core.amqp.vhost import split, virtual_host_of
from ...core.memory import Cache
from ...core.patterns import Pattern, TooSlow
from ...core.queue import Queue
from ...core.queue_options import QueueOptions
from ...core.settings.address_settings import AddressSettings
from ...core.settings.units import known_duration_ms
from ...entries.state import BrokerState
from ...errors import Refused
from .arguments import delayed_retries

log = logging.getLogger("homing")

_KIND: Final = "policy"
#: At the start each is looked at for each queue.
_MOST: Final = 500
#: Answers that are remembered, and what one takes beside its name.
_KNOWN_BYTES: Final = 8 << 20
_ANSWER_BYTES: Final = 250
#: Key of a policy -> setting of a queue, where of a policy's and a declaration's value the smaller one holds.
_LIMITS: Final = {
    "message-ttl": "message_ttl_ms",
    "expires": "expires_ms",
    "max-length": "max_length",
    "max-length-bytes": "max_length_bytes",
    "consumer-timeout": "consumer_timeout_ms",
}
_EXCHANGE: Final = "dead-letter-exchange"
_ROUTING_KEY: Final = "dead-letter-routing-key"


class Policies:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        #: (virtual host, name) -> policy.
        self._set: dict[tuple[str, str], Policy] = {}
        self._configured: dict[tuple[str, str], Policy] = {}
        self._known: Cache[tuple[str, str], Policy | None] = Cache(state.memory, _KNOWN_BYTES)
        self._told = set[Pattern]()
        #: Called when another policy holds somewhere.
        self.changed: list[Callable[[], None]] = []

    # -- asked -------------------------------------------------------------------------------------------------------

    def all(self) -> list[tuple[Policy, bool]]:
        """Each with whether it stands in broker.yaml, which goes before one of the same name that a command has set."""
        merged = {**self._set, **self._configured}
        return [(policy, key in self._configured) for key, policy in sorted(merged.items())]

    def for_queue(self, name: str) -> Policy | None:
        """``name``: in full, with the prefix of its virtual host."""
        return self._find(name, QUEUES)

    def for_exchange(self, virtual_host_prefix: str, name: str) -> Policy | None:
        return self._find(virtual_host_prefix + name, EXCHANGES)

    def _find(self, name: str, kind: str) -> Policy | None:
        if not self._set and not self._configured:
            return None
        key = kind, name
        if key in self._known.found:
            return self._known.found[key]
        found = self._best(key)
        self._known.keep(key, found, _ANSWER_BYTES + len(name))
        return found

    def _best(self, key: tuple[str, str]) -> Policy | None:
        kind, name = key
        policies = [policy for policy, _ in self.all()]
        found = best(policies, virtual_host_of(name), split(name)[1], kind)
        for policy in policies:
            if policy.pattern.slow and policy.pattern not in self._told:
                self._told.add(policy.pattern)
                log.warning("policy-slow: policy %s does not hold where its pattern takes too long, as for %s %s", policy.name, kind, name)
        return found

    # -- changed -----------------------------------------------------------------------------------------------------

    def set(self, policy: Policy) -> None:
        """Sets a policy, or replaces the one of its name. Raises Refused."""
        key = policy.virtual_host, policy.name
        if key in self._configured:
            raise _in_file(policy.name)
        if key not in self._set and len(self._set) >= _MOST:
            raise Refused("too-many-policies", f"there are {_MOST} policies, as many as there may be", "clear some")
        names = self._names_of(policy)
        replaced, self._set[key] = self._set.get(key), policy
        content = PolicyContent(
            name=policy.name,
            virtual_host=policy.virtual_host,
            pattern=policy.pattern.pattern,
            apply_to=policy.apply_to,
            priority=policy.priority,
            definition=dict(policy.definition),
        )
        self._state.journal.batch.declare(DeclarationRecord(_KIND, json.dumps(key), content))
        self._gone(replaced)
        for kind, name in names:
            if policy.before(self._known.found[kind, name]):
                self._known.found[kind, name] = policy
        self._notify()

    def clear(self, virtual_host: str, name: str) -> None:
        """Raises Refused where there is none of that name."""
        key = virtual_host, name
        if key in self._configured:
            raise _in_file(name)
        if key not in self._set:
            raise Refused("no-such-policy", f"there is no policy {name} in virtual host {virtual_host}", "homing policy list shows all")
        self._forget(key)
        self._notify()

    def _forget(self, key: tuple[str, str]) -> None:
        self._gone(self._set.pop(key))
        self._state.journal.batch.delete_declaration(_KIND, json.dumps(key))

    def forget_virtual_host(self, name: str) -> None:
        for key in [key for key in self._set if key[0] == name]:
            self._forget(key)

    def configure(self, policies: Iterable[Policy]) -> None:
        """Those of broker.yaml, now."""
        configured = {(policy.virtual_host, policy.name): policy for policy in policies}
        if configured != self._configured:
            self._configured = configured
            self._known.clear()
            self._notify()

    def _gone(self, policy: Policy | None) -> None:
        """Where it held, all are looked at again."""
        for key, known in self._known.found.items():
            if known is policy and policy is not None:
                self._known.found[key] = self._best(key)

    def _names_of(self, policy: Policy) -> list[tuple[str, str]]:
        """Of those that are known, the ones that it matches. Raises Refused."""
        try:
            return [key for key in self._known.found if policy.matches(virtual_host_of(key[1]), split(key[1])[1], key[0])]
        except TooSlow:
            said = f"the pattern {policy.pattern.pattern!r:.80} takes too long on a name that is there"
            raise Refused("invalid-policy", said, "use a simpler one, or several policies") from None

    def _notify(self) -> None:
        for listener in self.changed:
            listener()

    def restore(self, declarations: Iterable[DeclarationRecord]) -> None:
        """What the journal kept."""
        for record in declarations:
            if record.kind != _KIND:
                continue
            try:
                policy = read_policy(**_known(record.content))
            except (PolicyError, TypeError) as error:
                log.error(
                    "declaration-unreadable: policy %s in the journal is not understood any more (%s); it does not apply",
                    record.name,
                    error,
                )
            else:
                self._set[policy.virtual_host, policy.name] = policy


def _known(content: Mapping[str, Any]) -> Mapping[str, Any]:
    definition = content.get("definition")
    if not isinstance(definition, dict):
        return content
    return {**content, "definition": definition | {key: known_duration_ms(definition[key]) for key in DURATIONS & definition.keys()}}


def _in_file(name: str) -> Refused:
    return Refused("policy-configured", f"policy {name} stands in broker.yaml", "change it there and reload")


# -- in force ------------------------------------------------------------------------------------------------------------


def with_policy(settings: AddressSettings, options: QueueOptions, policy: Policy | None) -> AddressSettings:
    """The settings of a queue that was declared with ``options`` (of which they hold our own already), under a policy.

    RabbitMQ's rules: of limits and times to live the smaller one holds, in everything else the declaration goes before the policy.
    """
    arguments = declared_arguments(options)
    definition: Mapping[str, Any] = {} if policy is None else policy.definition
    changes = delayed_retries(arguments, definition)
    for key, field in _LIMITS.items():
        if key in definition:
            own = getattr(settings, field) if field in options else None
            changes[field] = definition[key] if own is None else min(own, definition[key])
    if "delivery-limit" in definition:
        own = settings.max_delivery_attempts if "max_delivery_attempts" in options else -1
        limits = [limit for limit in (own, definition["delivery-limit"] + 1) if limit > 0]
        changes |= {"max_delivery_attempts": min(limits, default=-1), "limit_meant": True}
    declared = "x-overflow" in arguments if AMQP in options else "overflow" in options
    if "overflow" in definition and not declared:
        changes["overflow"] = definition["overflow"]
    elif not declared and AMQP in options and ("max-length" in definition or "max-length-bytes" in definition):
        changes["overflow"] = "drop-head"
    return replace(settings, **changes) if changes else settings


def fields_of(policy: Policy) -> dict[str, Any]:
    """The settings that a policy sets, with its values."""
    definition = policy.definition
    found = {field: definition[key] for key, field in _LIMITS.items() if key in definition}
    if "delivery-limit" in definition:
        limit = definition["delivery-limit"]
        found["max_delivery_attempts"] = limit + 1 if limit >= 0 else -1
    if "max-length" in definition or "max-length-bytes" in definition:
        found["overflow"] = "drop-head"
    if "overflow" in definition:
        found["overflow"] = definition["overflow"]
    return {**found, **delayed_retries({}, definition)}


def dead_letter_exchange(queue: Queue) -> tuple[str | None, str | None]:
    """(exchange, routing key) for the queue's dead letters: what it was declared with, else what its policy says; None for neither."""
    arguments = arguments_of(queue)
    definition: Mapping[str, Any] = queue.policy.definition if queue.policy is not None else {}
    exchange = arguments.get("x-" + _EXCHANGE)
    replaced = arguments.get("x-" + _ROUTING_KEY)
    replaced = None if replaced is None else key_of(replaced)
    return (
        definition.get(_EXCHANGE) if exchange is None else exchange,
        definition.get(_ROUTING_KEY) if replaced is None else replaced,
    )
