"""Lists the tensors of safetensors files as the package safetensors reads them: file, name, dtype,
shape, the beginning of the SHA-256 of the bytes. Usage: read_checkpoint.py FILE..."""
import hashlib
import pathlib
import sys

import safetensors

for path in map(pathlib.Path, sys.argv[1:]):
    for name, tensor in sorted(safetensors.deserialize(path.read_bytes())):
        shape = "x".join(map(str, tensor["shape"]))
        print(path.name, name, tensor["dtype"], shape,
              hashlib.sha256(tensor["data"]).hexdigest()[:16])
