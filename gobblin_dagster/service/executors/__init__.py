"""Where jobs run: executors take orders from the store and report what became of them."""
