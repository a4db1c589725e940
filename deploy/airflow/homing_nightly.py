"""A DAG of Airflow 3: a report each night, of a broker elsewhere. The worker's Python has homing[analytics].

Airflow's variables: ``homing_source`` (its address), ``homing_place`` (a directory that stays) and ``homing_password_file``.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG("homing_nightly", schedule="30 2 * * *", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1):
    BashOperator(
        task_id="report",
        # Ends with 7 where a limit does not hold, and fails.
        bash_command=f'sh {sys.prefix}/share/homing/homing-nightly "$SOURCE" "$PLACE" \'dead_letter_rate > 5%\'',
        env={
            "SOURCE": "{{ var.value.homing_source }}",
            "PLACE": "{{ var.value.homing_place }}",
            "HOMING_PASSWORD_FILE": "{{ var.value.homing_password_file }}",
        },
        append_env=True,
    )
