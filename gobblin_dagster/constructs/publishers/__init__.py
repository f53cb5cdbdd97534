"""Publishers: decide what happens to a branch's staged files. The protocol is `core.constructs.DataPublisher`."""

from types import MappingProxyType

STEP_MODULES = MappingProxyType(
    {
        "append_to_delta": f"{__name__}.delta_steps",
        "append_to_iceberg": f"{__name__}.iceberg_steps",
        "load_sql_table": f"{__name__}.sql_table",
        "merge_into_delta": f"{__name__}.delta_steps",
        "merge_into_iceberg": f"{__name__}.iceberg_steps",
        "send_to_kafka": f"{__name__}.kafka_topic",
    }
)
"""Module that registers each publisher's step: a stored sequence may outlive the job file that names its publisher."""
