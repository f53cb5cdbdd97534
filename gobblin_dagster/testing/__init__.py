"""Tools for tests of your own constructs, and the crash tests of the commit protocol. May import up to `engine`.

    conformance/       tests of each protocol, to inherit: for authors of sources, converters, storages, state stores
    inline_runner.py   runs work units without Spark, so that a whole job takes milliseconds
    rows_source.py     a source of made-up rows, with options that make it fail
    faults.py          lets the n-th operation of a store or storage fail, or ends the run there
    damage.py          damages published files and manifests, for tests of `gobblin verify`
    protocol/          kills commits at every step and checks the result

Read first: `conformance/storage.py`. Only `conformance/` needs pytest.
"""
