"""Source `python`: a function of the user's that yields rows. Read first: `source`."""
