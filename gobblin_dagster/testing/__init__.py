"""What shows that the parts hold, shipped for people who write parts of their own. Imports up to `engine`.

Read first: `faults.py` (fault points), `schedules.py` (what is run), `checkers.py` (what must hold), `example.py` (the
scenario), `power.py` (power loss). `lane.py` runs work units without Spark.
"""
