"""Compares two Hugging Face folders tensor by tensor: compare_tensors.py WANTED FOUND

Values must be equal, names and shapes too; F16 may have become F32. With FOUND in F8_E4M3 the
dequantised values must be within half a step of E4M3 of the wanted ones."""
import glob
import json
import struct
import sys


def half(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def e4m3(code):
    sign, exponent, fraction = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    return sign * (fraction / 512 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7))


def values(kind, data):
    if kind == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if kind == "F8_E4M3":
        return [e4m3(x) for x in data]
    codes = struct.unpack(f"<{len(data) // 2}H", data)
    if kind == "F16":
        return [half(x) for x in codes]
    return list(struct.unpack(f"<{len(codes)}f", b"".join(struct.pack("<HH", 0, x)
                                                         for x in codes)))


def tensors(folder):
    found = {}
    for path in glob.glob(f"{folder}/*.safetensors"):
        with open(path, "rb") as f:
            raw = f.read()
        n = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8:8 + n])
        assert header.pop("__metadata__")["format"] == "pt", path
        for name, x in header.items():
            begin, end = (8 + n + at for at in x["data_offsets"])
            assert name not in found, name
            found[name] = (x["dtype"], x["shape"], values(x["dtype"], raw[begin:end]))
    return found


def dequantise(found, name):
    _, (rows, cols), codes = found[name]
    _, shape, factors = found.pop(name + "_scale_inv")
    assert shape == [-(-rows // 128), -(-cols // 128)], (name, shape)
    return [code * factors[i // cols // 128 * shape[1] + i % cols // 128]
            for i, code in enumerate(codes)]


def main():
    wanted, found = tensors(sys.argv[1]), tensors(sys.argv[2])
    quantised = [name for name, x in found.items() if x[0] == "F8_E4M3"]
    for name in quantised:
        was, now = wanted[name][2], dequantise(found, name)
        largest = max(map(abs, was))
        for a, b in zip(was, now, strict=True):
            assert abs(a - b) <= max(abs(a) / 16, largest / 448), (name, a, b)
        wanted.pop(name), found.pop(name)
    assert wanted.keys() == found.keys(), sorted(wanted.keys() ^ found.keys())[:3]
    for name, (_, shape, was) in wanted.items():
        assert found[name][1] == shape, (name, shape, found[name][1])
        assert found[name][2] == was, name
    print(len(wanted), len(quantised))


main()
