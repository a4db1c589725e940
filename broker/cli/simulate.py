"""``homing simulate``: what another policy would have made of the failures on record."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from .analyze import OnDamage
from .output import Json, SparkMaster, SparkMemory, escape, print_json, progress_bar, stderr, stdout, write_privately
from .tables import Column, Listing, Wide, print_table


def simulate(
    dump: Annotated[list[str], typer.Argument(help="What homing journal export wrote, or directories of it.")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="A broker.yaml, or only its address-settings, with the new policy.")],
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Also write the figures here, as Parquet, CSV and a page, report.html.")
    ] = None,
    on_damage: Annotated[
        OnDamage, typer.Option("--on-damage", help="Damaged or foreign files: refuse, or skip and name them.")
    ] = OnDamage.REFUSE,
    store: Annotated[str | None, typer.Option("--store", help="Keep what was merged here; the next run reads only new exports.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same answer.")] = 1,
    master: SparkMaster = None,
    memory: SparkMemory = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Play recorded failures again under another redelivery policy: time to success, deliveries, peaks, dead letters, order."""
    from homing.analytics.commands.simulate import sentence, shown
    from homing.analytics.commands.simulate import simulate as run_simulation
    from homing.analytics.words import NB

    write_privately()
    with progress_bar(counted=False) as progress:
        progress.add_task("playing the failures again")
        found = run_simulation(dump, policy, out, master, seed=seed, on_damage=on_damage.value, store=store, memory=memory)
    if as_json:
        print_json({"seed": seed, "out": found.out, "figures": found.rows, "warning": found.warning})
        return
    stdout.print("[bold]" + escape(sentence(found.rows).replace(NB, " ")) + ".[/]")
    if found.warning:
        stderr.print(f"[yellow]warning[/]  {escape(found.warning)}")
    ranks = {"recorded": 0, "expected": 0, "90 % between": 1, "observed": 2}
    columns = [Column("queue"), Column("figure"), *(Column(heading, rank, number=True) for heading, rank in ranks.items())]
    lines = []
    for queue, rows in groupby(found.rows, key=lambda row: row["queue"]):
        for number, row in enumerate(rows):
            figure = row["figure"]
            recorded, expected, low, high = (shown(figure, row[each]).replace(NB, " ") for each in ("recorded", "expected", "low", "high"))
            between = "cannot be known" if row["low"] is None else f"{low} – {high}"
            seen = "–" if row["observed_share"] is None else f"{100 * row['observed_share']:.0f} %"
            name = "" if number else "all" if queue is None else queue
            lines.append((escape(name), figure, recorded, expected, between, seen))
    print_table(Listing(columns, lines), wide)
