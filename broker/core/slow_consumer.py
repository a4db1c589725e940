"""Who is slow by the settings of its queue: it settles fewer messages a second than wanted, or has one for too long. Pure."""

from __future__ import annotations

from .consumer import Consumer, Pace


def look(consumer: Consumer, now_ms: int) -> str:
    """Why it is slow, in words, when it has become so; empty otherwise. To be called about once a second."""
    settings, before = consumer.queue.settings, consumer.pace
    if settings.slow_consumer_threshold is settings.slow_consumer_age_ms is None:
        consumer.pace = None
        return ""
    pace = before
    if pace is None or now_ms - pace.at_ms >= settings.slow_consumer_check_period_ms:
        pace = _next_pace(consumer, now_ms)
    why = _by_age(consumer, now_ms) or pace.by_rate
    consumer.pace = pace._replace(slow=bool(why))
    return "" if before is not None and before.slow else why


def _by_age(consumer: Consumer, now_ms: int) -> str:
    most_ms, oldest = consumer.queue.settings.slow_consumer_age_ms, next(iter(consumer.unsettled.values()), None)
    if most_ms is None or oldest is None or oldest.delivered_at_ms is None or now_ms - oldest.delivered_at_ms < most_ms:
        return ""
    return f"it has message {oldest.message.message_id} for {(now_ms - oldest.delivered_at_ms) / 1000:.0f} s"


def _next_pace(consumer: Consumer, now_ms: int) -> Pace:
    """Ends a period. It was slow where there was as much as it had to settle, and at the end, too, it had something to do."""
    queue, before = consumer.queue, consumer.pace
    threshold = queue.settings.slow_consumer_threshold or 0.0
    settled = consumer.next_tag - 1 - len(consumer.unsettled)
    at_work = (bool(consumer.unsettled) or not consumer.sink.writable) and consumer.connection not in queue.apart
    there = len(consumer.unsettled) + (0 if queue.paused else queue.ready)
    by_rate = ""
    if before is not None and before.busy and at_work:
        passed_s = (now_ms - before.at_ms) / 1000
        rate = (settled - before.settled) / passed_s
        if rate < threshold:
            by_rate = f"it settled {rate:.3g} messages a second over {passed_s:.0f} s, and is to settle {threshold:g}"
    return Pace(now_ms, settled, at_work and there >= threshold * queue.settings.slow_consumer_check_period_ms / 1000, by_rate)
