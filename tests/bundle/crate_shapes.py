"""Prints the shapes of the entities of RO-Crates: types, properties and status of the action, each
shape once. Usage: crate_shapes.py CRATE_DIRECTORY..."""
import json
import pathlib
import sys

shapes = set()
for crate in sys.argv[1:]:
    for entity in json.loads(pathlib.Path(crate, "ro-crate-metadata.json").read_text())["@graph"]:
        types = entity["@type"]
        words = ["+".join(types if isinstance(types, list) else [types]) + ":"]
        words += sorted(key for key in entity if not key.startswith("@"))
        if "actionStatus" in entity:
            words.append(entity["actionStatus"])
        shapes.add(" ".join(words))
print("\n".join(sorted(shapes)))
