"""Everything that a decision about a failed message depends on, under a short name: what an attempt's record says decided it."""

from __future__ import annotations

import hashlib

from homing.journal.contract import ConsumerPolicyInForce, PolicyInForce

from .redelivery import ConsumerPolicy
from .settings.address_settings import AddressSettings


def policy_in_force(settings: AddressSettings, policy: ConsumerPolicy | None) -> tuple[str, PolicyInForce]:
    """(short hash, what it stands for): equal for equal rules, at every start and on every machine, the order of fields included."""
    values = PolicyInForce(
        redelivery_delay_ms=settings.redelivery_delay_ms,
        redelivery_delay_multiplier=settings.redelivery_delay_multiplier,
        redelivery_collision_avoidance_factor=settings.redelivery_collision_avoidance_factor,
        max_redelivery_delay_ms=settings.max_redelivery_delay_ms,
        redelivery_back_off=settings.redelivery_back_off,
        redelivery_delays_ms=list(settings.redelivery_delays_ms),
        max_delivery_attempts=settings.max_delivery_attempts,
        max_nack_delay_ms=settings.max_nack_delay_ms,
        allow_consumer_policy=settings.allow_consumer_policy,
        dead_letter_address=settings.dead_letter_address,
        consumer_policy=None if policy is None else _of_consumer(policy),
    )
    return hashlib.blake2s(repr(values).encode(), digest_size=6).hexdigest(), values


def _of_consumer(policy: ConsumerPolicy) -> ConsumerPolicyInForce:
    return ConsumerPolicyInForce(
        maximum_redeliveries=policy.maximum_redeliveries,
        initial_redelivery_delay_ms=policy.initial_redelivery_delay_ms,
        redelivery_delay_ms=policy.redelivery_delay_ms,
        use_exponential_back_off=policy.use_exponential_back_off,
        back_off_multiplier=policy.back_off_multiplier,
        maximum_redelivery_delay_ms=policy.maximum_redelivery_delay_ms,
        use_collision_avoidance=policy.use_collision_avoidance,
        collision_avoidance_factor=policy.collision_avoidance_factor,
    )
