"""The checked-in documents say what the contract says."""

import json

from services import schema


def test_the_checked_in_documents_are_current():
    assert schema.stale() == [], "run: python -m services.schema"


def test_every_message_has_a_schema_with_its_tag_and_a_docstring():
    definitions = schema.schemas()["$defs"]
    for kind, members in schema.unions().items():
        for message in members:
            definition = definitions[message.__name__]
            tag = message.__struct_config__.tag
            assert definition["properties"]["type"] == {"enum": [tag]}, kind
            assert definition["description"], message


def test_every_reference_leads_somewhere():
    definitions = schema.schemas()["$defs"]
    api = schema.asyncapi()

    def references(value):
        if isinstance(value, dict):
            if "$ref" in value:
                yield value["$ref"]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    for reference in [*references(schema.schemas()), *references(api)]:
        file, _, place = reference.partition("#/")
        if place.startswith("$defs/"):
            assert place.removeprefix("$defs/") in definitions
        else:
            assert file == ""
            here = api
            for part in place.split("/"):
                here = here[part]


def test_documents_are_written_and_found_stale_when_they_differ(tmp_path):
    for file in schema.write(tmp_path):
        json.loads(file.read_text())
    assert schema.stale(tmp_path) == []
    (tmp_path / "schemas.json").write_text("{}")
    assert schema.stale(tmp_path) == ["schemas.json"]
