"""Code shared by sources with a watermark column: reading from the last position on."""
