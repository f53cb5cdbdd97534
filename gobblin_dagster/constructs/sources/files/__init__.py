"""Source `files`: folders of files, read as a stream of new files per dataset. Read first: `source`."""
