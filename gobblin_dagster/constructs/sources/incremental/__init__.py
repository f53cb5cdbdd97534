"""What sources with a cursor column share: reading from the last position on."""
