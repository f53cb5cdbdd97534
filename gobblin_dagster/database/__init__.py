"""SQL plumbing without tables of its own: engines, dialects, migrations; for `state` and `service`."""
