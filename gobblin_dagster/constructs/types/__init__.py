"""Arrow and Avro types: conversions, casts that lose nothing, checks of columns."""
