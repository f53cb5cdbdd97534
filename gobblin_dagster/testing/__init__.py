"""Tools for tests of your own constructs, and the laboratory that tests the commit protocol. May import up to `engine`.

`inline_runner.py` runs work units without Spark, `rows_source.py` is a source of fixed rows, `faults.py` makes the n-th
operation of a store or storage fail. `protocol/` kills commits at every step and checks what is left.
"""
