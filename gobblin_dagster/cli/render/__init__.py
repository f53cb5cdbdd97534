"""How results are shown: tables, plans, progress, JSON documents."""
