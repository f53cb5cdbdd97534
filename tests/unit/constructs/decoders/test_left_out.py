from __future__ import annotations

from gobblin_dagster.constructs.decoders.left_out import LeftOutFields


def test_fields_that_are_all_declared_give_no_note() -> None:
    fields = LeftOutFields({"id": "int64", "place": {"city": "string"}, "any": "json"}, "the value")
    for record in ({"id": 1, "place": {"city": "x"}, "any": {"more": 1}}, {"place": None}, None, [1], "text"):
        fields.add(record)
    assert fields.notes() == ()


def test_fields_of_objects_and_lists_are_named_with_their_path_each_once() -> None:
    fields = LeftOutFields({"place": {"city": "string"}, "lines": [{"sku": "string"}]}, "the value")
    for _ in range(2):
        fields.add({"top": 1, "place": {"city": "x", "zip": 1}, "lines": [{"sku": "a"}, {"price": 1}]})
    assert fields.notes() == (
        "field(s) of the value that `columns` does not declare were left out: 'lines.price', 'place.zip', 'top'.",
    )


def test_many_and_long_names_are_cut() -> None:
    fields = LeftOutFields({"id": "int64"}, "the value")
    fields.add({f"{n:03}" + "x" * 1000: n for n in range(150)} | {"a\nb": 1})
    (note,) = fields.notes()
    assert note.endswith(" and 95 or more other(s).")
    assert len(note) < 500
    assert "\n" not in note
