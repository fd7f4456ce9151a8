"""Checks an OpenAPI 3.1 document: each reference has its target, each required key is declared, and each example matches
its schema.

    tests/e2e/openapi_check.py FILE
"""
import json
import re
import sys

import jsonschema

METHODS = ("get", "put", "post", "delete")
NO_EXAMPLE = ("text/html", "*/*", "text/event-stream", "application/openmetrics-text")


def follow(doc, ref):
    assert ref.startswith("#/"), f"{ref} is not a reference within the document"
    found = doc
    for step in ref[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        assert step in found, f"{ref}: the document has no {step}; add it to docs/schema/api.json, or correct the row of routes.def"
        found = found[step]
    return found


def refs(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for v in node.values():
            yield from refs(v)
    elif isinstance(node, list):
        for v in node:
            yield from refs(v)


def operations(doc):
    """Returns (path, method, operation) of each operation."""
    for path, item in doc["paths"].items():
        for method, operation in item.items():
            assert method in METHODS, (path, method)
            yield path, method, operation


def whole(doc, node):
    return follow(doc, node["$ref"]) if "$ref" in node else node


def validate(doc, schema, value, what):
    """Validates a value against a schema of the document."""
    resolver = jsonschema.RefResolver("", doc)
    errors = list(jsonschema.Draft202012Validator(schema, resolver=resolver).iter_errors(value))
    assert not errors, f"{what}: {errors[0].message[:300]} at {list(errors[0].absolute_path)}"


def unnamed(doc, schema, value, where="$"):
    """Returns the keys of value that the schema does not name.  Clients must accept such keys; our tests do not."""
    parts = list(parts_of(doc, schema))
    if isinstance(value, list):
        for i, item in enumerate(value):
            for part in parts:
                if "items" in part:
                    yield from unnamed(doc, part["items"], item, f"{where}[{i}]")
    if not isinstance(value, dict) or not any("properties" in p for p in parts):
        return
    for key, inner in value.items():
        known = [p["properties"][key] for p in parts if key in p.get("properties", {})]
        if known:
            yield from unnamed(doc, {"allOf": known}, inner, f"{where}.{key}")
        elif not any("additionalProperties" in p for p in parts):
            yield f"{where}.{key}"


def parts_of(doc, schema):
    """Returns a schema with every $ref resolved, and the schemas that it is composed of."""
    if "$ref" in schema:
        yield from parts_of(doc, follow(doc, schema["$ref"]))
    for part in schema.get("allOf", []) + schema.get("anyOf", []) + schema.get("oneOf", []):
        yield from parts_of(doc, part)
    yield schema


def check_parameters(doc, path, operation):
    names = [(p["in"], p["name"]) for p in operation["parameters"]]
    assert len(set(names)) == len(names), f"{path}: a parameter occurs twice"
    inside = set(re.findall(r"{(\w+)}", path))
    assert inside == {n for where, n in names if where == "path"}, f"{path}: path parameters"
    for p in operation["parameters"]:
        assert p["description"] and "schema" in p, (path, p["name"])
        assert p["in"] != "path" or p["required"] is True, (path, p["name"])
        validate(doc, p["schema"], p["example"], f"{path}: {p['name']}")


def check_content(doc, content, what):
    for kind, form in content.items():
        jsonschema.Draft202012Validator.check_schema(form["schema"])
        assert "example" in form or kind in NO_EXAMPLE, f"{what}: no example of {kind}"
        if "example" in form:
            validate(doc, form["schema"], form["example"], what)


def check_operation(doc, path, method, operation):
    what = f"{method} {path}"
    for key in ("operationId", "summary", "description", "tags", "responses"):
        assert operation[key], f"{what}: no {key}"
    assert set(operation["tags"]) <= {t["name"] for t in doc["tags"]}, what
    check_parameters(doc, path, operation)
    if "requestBody" in operation:
        check_content(doc, operation["requestBody"]["content"], what + " body")
    assert {"2", "4"} <= {s[0] for s in operation["responses"]}, f"{what}: no 2xx or no 4xx"
    for status, response in operation["responses"].items():
        response = whole(doc, response)
        assert re.fullmatch("[1-5][0-9][0-9]", status) and response["description"], what
        if int(status) >= 400:
            assert list(response["content"]) == ["application/problem+json"], what
        check_content(doc, response.get("content", {}), f"{what} {status}")
    for requirement in operation["security"]:
        assert set(requirement) <= set(doc["components"]["securitySchemes"]), what


def check(doc):
    assert doc["openapi"].startswith("3.1."), doc["openapi"]
    assert doc["info"]["title"] and doc["info"]["version"]
    assert all(not re.match(r"\w+://", s["url"]) for s in doc["servers"]), "servers are relative"
    for ref in refs(doc):
        follow(doc, ref)
    for name, schema in doc["components"]["schemas"].items():
        assert re.fullmatch(r"[\w.-]+", name), name
        jsonschema.Draft202012Validator.check_schema(schema)
    ids = [o["operationId"] for _, _, o in operations(doc)]
    assert len(set(ids)) == len(ids), "an operationId occurs twice"
    for path, method, operation in operations(doc):
        assert path.startswith("/"), path
        check_operation(doc, path, method, operation)
    unused = set(doc["components"]["schemas"]) - {r.split("/")[3] for r in refs(doc) if "/schemas/" in r}
    assert not unused, f"unused schemas: {unused}"
    return len(ids)


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        print(check(json.load(f)), "operations")
