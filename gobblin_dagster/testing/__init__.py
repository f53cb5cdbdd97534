"""Tools for tests of your own constructs, and the laboratory that tests the commit protocol. May import up to `engine`.

    conformance/       tests of each protocol, to inherit: for who writes a source, converter, storage or state store
    inline_runner.py   runs work units without Spark, so that a whole job takes milliseconds
    rows_source.py     a source of made-up rows, with knobs for failure
    faults.py          lets the n-th operation of a store or storage fail, or ends the run there
    damage.py          harms what is published, for tests of `gobblin verify`
    protocol/          kills commits at every step and checks what is left

Read first: `conformance/storage.py`. pytest is needed by `conformance/` alone.
"""
