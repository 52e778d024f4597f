"""Why a graph was not in the cache: the fields of its key beside those of the nearest one."""

from __future__ import annotations

from inductoscope.profiling.compile_times import CacheKey, differing_fields

FIELDS = (
    "[aaa] gm: graph(x): sin",
    "[bbb] example_inputs[0]: TensorMetadata(shape=(8, 8))",
    "[ccc] inductor_config[max_fusion_size]: 64",
)


def key(name: str, *fields: str) -> CacheKey:
    return CacheKey(name, f"f{name}", fields)


def test_the_fields_that_differ_are_named_with_both_values() -> None:
    other = (FIELDS[0], "[bbx] example_inputs[0]: TensorMetadata(shape=(9, 8))", FIELDS[2])
    found = differing_fields(key("1/0", *other), key("0/0", *FIELDS))
    assert found == ["example_inputs[0] (etadata(shape=(8, 8)) there, etadata(shape=(9, 8)) here)"]


def test_a_field_that_only_one_key_has_is_named() -> None:
    found = differing_fields(key("1/0", *FIELDS[:2]), key("0/0", *FIELDS))
    assert found == ["inductor_config[max_fusion_size] (only there)"]


def test_equal_keys_differ_in_nothing() -> None:
    assert differing_fields(key("1/0", *FIELDS), key("0/0", *FIELDS)) == []
