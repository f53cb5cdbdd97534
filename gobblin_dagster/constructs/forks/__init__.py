"""Fork operators: decide which branches take which rows."""
