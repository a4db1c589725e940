"""One place for what every command shows of itself in its help and in the manual page."""

from __future__ import annotations

from typing import Final

#: The words of a command -> lines for a shell.
EXAMPLES: Final = {
    "serve": ["homing serve", "homing serve --config /etc/homing/broker.yaml --json"],
    "reload": ["homing reload"],
    "tls self-signed": ["homing tls self-signed --host broker.example --host 10.0.0.5 --directory /etc/homing/tls"],
    "health": ["homing health", "homing health --url http://127.0.0.1:7172 --json"],
    "send": [
        "homing send orders --body '{\"id\": 7}' --property region=eu --delay 5s",
        "homing send orders --file events.jsonl --property size:=5",
    ],
    "receive": ["homing receive orders --count 10 --json | jq .body", 'homing receive orders --fail "no stock"'],
    "peek": ["homing peek DLQ.orders --count 50", "homing peek DLQ.orders --json | jq .properties"],
    "redrive": ["homing redrive DLQ.orders", "homing redrive DLQ.orders --id 1049601"],
    "move": ["homing move 1049601 orders"],
    "delete": ["homing delete 1049601 --yes"],
    "why": ["homing why 1049601"],
    "queues": ["homing queues --watch", "homing queues --json | jq '.[] | select(.parked > 0)'"],
    "consumers": ["homing consumers orders"],
    "connections": ["homing connections --by memory --watch"],
    "statistics": ["homing statistics --watch"],
    "history": ["homing history 1049601", "homing history 1049601 --data homing-data"],
    "explain": ["homing explain orders.eu", "homing explain orders.eu --attempts 20", "homing explain orders.eu --config broker.yaml"],
    "queue create": ["homing queue create orders max-length=100000 overflow=reject-publish"],
    "queue delete": ["homing queue delete orders --if-empty"],
    "queue purge": ["homing queue purge orders"],
    "queue pause": ["homing queue pause orders"],
    "queue resume": ["homing queue resume orders"],
    "connection close": ["homing connection close c17"],
    "policy explain": ["homing policy explain orders"],
    "policy set": ["homing policy set ttl '^orders' '{\"message-ttl\": 60000}' --apply-to queues"],
    "policy list": ["homing policy list"],
    "policy clear": ["homing policy clear ttl"],
    "vhost add": ["homing vhost add shop"],
    "vhost list": ["homing vhost list"],
    "vhost delete": ["homing vhost delete shop"],
    "config check": ["homing config check broker.yaml"],
    "config export": ["homing config export > broker.yaml"],
    "settings set": [
        "homing settings set 'orders.#' redelivery-delay=5s max-delivery-attempts=8",
        "homing settings set --file orders.yaml --dry-run",
    ],
    "settings unset": ["homing settings unset 'orders.#' redelivery-delay"],
    "settings list": ["homing settings list"],
    "user hash": ["homing user hash", "pass show homing | homing user hash -"],
    "journal export": ["homing journal export --out dump"],
    "journal backup": ["homing journal backup monday"],
    "journal restore": ["homing journal restore homing-data/backups/monday --data restored"],
    "journal check": ["homing journal check --data homing-data"],
    "analyze": ["homing analyze dump --out report", "homing analyze before after --compare --out report"],
    "simulate": ["homing simulate dump --policy broker.yaml"],
}
