"""The ports of servers whose URLs name none."""

DEFAULT_PORTS = {
    "hdfs": 8020,
    "http": 80,
    "https": 443,
    "kafka": 9092,
    "mariadb": 3306,
    "mssql": 1433,
    "mysql": 3306,
    "oracle": 1521,
    "postgres": 5432,
    "postgresql": 5432,
    "sftp": 22,
    "sqlserver": 1433,
    "thrift": 9083,
}
"""By the scheme of a URL, in small letters."""
