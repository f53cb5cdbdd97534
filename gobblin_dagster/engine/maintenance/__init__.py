"""What people do by hand after runs: change state, go back, compact, clean, replay, abandon."""
