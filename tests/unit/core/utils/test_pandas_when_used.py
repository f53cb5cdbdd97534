from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from gobblin_dagster.constructs.types.exact_text import exact_values
from gobblin_dagster.constructs.types.inference import ColumnGuess
from gobblin_dagster.core.utils.pandas_when_used import import_pandas_when_used
import_pandas_when_used()
import_pandas_when_used()
import pyarrow as pa
texts = pa.array(["1.50", "3.0", "2"], pa.string())
ColumnGuess().look(texts)
assert exact_values(texts, pa.float64()).to_pylist() == [1.5, 3.0, 2.0]
assert "pandas" not in sys.modules
import pandas as pd
assert pa.array(pd.Series([1.0, float("nan")])).null_count == 1, "pyarrow knows objects of pandas"
assert pa.table({"a": [1]}).to_pandas().shape == (1, 1)
assert pd.__spec__.loader is pd.__loader__ and "Showing" not in str(pd.__loader__)
import_pandas_when_used()
assert pa.array(pd.Series([float("nan")])).null_count == 1
"""


def test_pyarrow_imports_no_pandas_and_knows_it_when_somebody_does() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
