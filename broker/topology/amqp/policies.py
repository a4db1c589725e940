"""Policies: set by command (and kept in the journal) or by broker.yaml, and what they come to for a queue or an exchange."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from homing.journal.declarations import DeclarationRecord, PolicyContent, QueueOptions

from ...core.amqp.declared import AMQP, arguments_of, declared_arguments
from ...core.amqp.keys import key_of
from ...core.amqp.policy import DURATIONS, EXCHANGES, QUEUES, Definition, Policy, PolicyError, best, read_policy
from ...core.amqp.vhost import split, virtual_host_of
from ...core.memory import Cache, Memory
from ...core.patterns import Pattern, TooSlow
from ...core.queue import Queue
from ...core.settings.address_settings import AddressSettings
from ...core.settings.units import known_duration_ms
from ...errors import Refused
from ...recording.journal_port import JournalPort
from ...steps import STEP, Steps
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
    def __init__(self, journal: JournalPort, memory: Memory) -> None:
        self._journal = journal
        #: (virtual host, name) -> policy.
        self._set: dict[tuple[str, str], Policy] = {}
        self._configured: dict[tuple[str, str], Policy] = {}
        self._known: Cache[tuple[str, str], Policy | None] = Cache(memory, _KNOWN_BYTES)
        self._told = set[Pattern]()
        #: What held before the start for queues of which that may not be found out again, by their names.
        self._last: dict[str, str] = {}

    def held_last(self, queue: str, policy: str) -> None:
        """Before the start."""
        self._last[queue] = policy

    # -- asked -------------------------------------------------------------------------------------------------------

    def all(self) -> list[tuple[Policy, bool]]:
        """Each with whether it stands in broker.yaml, which goes before one of the same name that a command has set."""
        merged = {**self._set, **self._configured}
        return [(policy, key in self._configured) for key, policy in sorted(merged.items())]

    def slow(self) -> list[str]:
        """Those whose patterns ran out of time on some name, by their own."""
        return sorted({policy.name for policy, _ in self.all() if policy.pattern.slow})

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
        found = self.best([policy for policy, _ in self.all()], key)
        self._known.keep(key, found, _ANSWER_BYTES + len(name))
        return found

    def best(self, policies: Iterable[Policy], key: tuple[str, str]) -> Policy | None:
        """Of these, the one that holds for what is called so."""
        kind, name = key
        policies = list(policies)
        found = best(policies, virtual_host_of(name), split(name)[1], kind, self._last.get(name) if kind == QUEUES else None)
        for policy in policies:
            if policy.pattern.slow and policy.pattern not in self._told:
                self._told.add(policy.pattern)
                log.warning(
                    "policy-slow: policy %s holds where its pattern takes too long only if before, as for %s %s", policy.name, kind, name
                )
        return found

    # -- changed: each is taken up by Changes.bring ------------------------------------------------------------------

    def with_set(self, policy: Policy) -> PolicyChange:
        """The policy set, or replaced. Raises Refused."""
        key = policy.virtual_host, policy.name
        if key in self._configured:
            raise _in_file(policy.name)
        if key not in self._set and len(self._set) >= _MOST:
            raise Refused("too-many-policies", f"there are {_MOST} policies, as many as there may be", "clear some")

        def take() -> None:
            self._set[key] = policy
            content = PolicyContent(
                name=policy.name,
                virtual_host=policy.virtual_host,
                pattern=policy.pattern.pattern,
                apply_to=policy.apply_to,
                priority=policy.priority,
                definition=dict(policy.definition),
            )
            self._journal.batch.declare(DeclarationRecord(_KIND, json.dumps(key), content))

        after = {**self._set, key: policy, **self._configured}.values()
        return PolicyChange(self, self._known, after, take, new=policy, gone=self._set.get(key))

    def cleared(self, virtual_host: str, name: str) -> PolicyChange:
        """Without it. Raises Refused where there is none of that name."""
        key = virtual_host, name
        if key in self._configured:
            raise _in_file(name)
        if key not in self._set:
            raise Refused("no-such-policy", f"there is no policy {name} in virtual host {virtual_host}", "homing policy list shows all")

        def take() -> None:
            del self._set[key]
            self._journal.batch.delete_declaration(_KIND, json.dumps(key))

        after = [policy for other, policy in {**self._set, **self._configured}.items() if other != key]
        return PolicyChange(self, self._known, after, take, gone=self._set[key])

    def configured(self, policies: Iterable[Policy]) -> PolicyChange | None:
        """With these of broker.yaml; None where that is so already."""
        configured = {(policy.virtual_host, policy.name): policy for policy in policies}
        if configured == self._configured:
            return None

        def take() -> None:
            self._configured = configured

        return PolicyChange(self, self._known, {**self._set, **configured}.values(), take, anew=True)

    def forget_virtual_host(self, name: str) -> None:
        gone = {key: self._set.pop(key) for key in [key for key in self._set if key[0] == name]}
        for key in gone:
            self._journal.batch.delete_declaration(_KIND, json.dumps(key))
        if gone:
            self._known.clear()

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


class PolicyChange:
    """What would hold with other policies. ``new``: the only one of them that was not there before; ``gone``: the only one that is there no
    more; ``anew``: they may all be others. ``take``: called when they hold."""

    def __init__(
        self,
        policies: Policies,
        known: Cache[tuple[str, str], Policy | None],
        after: Iterable[Policy],
        take: Callable[[], None],
        *,
        new: Policy | None = None,
        gone: Policy | None = None,
        anew: bool = False,
    ) -> None:
        self._policies = policies
        self._known = known
        self._after = list(after)
        self._take = take
        self._new = new
        self._gone = gone
        self._anew = anew
        self._found: dict[tuple[str, str], Policy | None] = {}

    def look(self) -> Steps[None]:
        """For every name that was asked for before. Raises Refused."""
        for number, key in enumerate(list(self._known.found), 1):
            self._find(key)
            if number % STEP == 0:
                yield

    def for_queue(self, name: str) -> Policy | None:
        """As Policies.for_queue. Raises Refused."""
        return self._find((QUEUES, name))

    def _find(self, key: tuple[str, str]) -> Policy | None:
        if key not in self._found:
            self._found[key] = self._best(key)
        return self._found[key]

    def _best(self, key: tuple[str, str]) -> Policy | None:
        matches = self._new is not None and self._matches(self._new, key)
        if self._anew or key not in self._known.found:
            return self._policies.best(self._after, key)
        before = self._known.found[key]
        if before is not None and before is self._gone:
            return self._policies.best(self._after, key)
        return self._new if matches and self._new is not None and self._new.before(before) else before

    def _matches(self, policy: Policy, key: tuple[str, str]) -> bool:
        kind, name = key
        try:
            return policy.matches(virtual_host_of(name), split(name)[1], kind)
        except TooSlow:
            said = f"the pattern {policy.pattern.pattern!r:.80} takes too long on a name that is there"
            raise Refused("invalid-policy", said, "use a simpler one, or several policies") from None

    def take(self) -> None:
        """They hold from here on: what was known is what was found."""
        known = self._known.found
        known.update({key: self._find(key) for key in known})
        self._take()


def _known(content: Definition) -> Definition:
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
    definition: Definition = {} if policy is None else policy.definition
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
    definition: Definition = queue.policy.definition if queue.policy is not None else {}
    exchange = arguments.get("x-" + _EXCHANGE)
    replaced = arguments.get("x-" + _ROUTING_KEY)
    replaced = None if replaced is None else key_of(replaced)
    return (
        definition.get(_EXCHANGE) if exchange is None else exchange,
        definition.get(_ROUTING_KEY) if replaced is None else replaced,
    )
