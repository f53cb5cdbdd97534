"""A flow becomes a DAG of jobs, or the reasons why it cannot."""
