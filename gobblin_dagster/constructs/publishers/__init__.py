"""Publishers: what becomes of a branch's files once its rows are staged. The protocol is `DataPublisher` of `core.constructs`."""

from types import MappingProxyType

STEP_MODULES = MappingProxyType(
    {
        "append_to_delta": f"{__name__}.delta",
        "append_to_iceberg": f"{__name__}.iceberg",
        "load_sql_table": f"{__name__}.sql_table",
        "send_to_kafka": f"{__name__}.kafka_topic",
    }
)
"""Where each step of a publisher is registered: a stored sequence outlives the job file that named its publisher."""
