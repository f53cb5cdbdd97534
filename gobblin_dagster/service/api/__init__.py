"""REST: Rest.li's wire format, the records of Gobblin's clients, and the routes."""
