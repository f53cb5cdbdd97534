"""Arrow and Avro types: conversions, casts that lose nothing, names of columns."""
