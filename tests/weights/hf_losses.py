"""The losses that transformers gives to a text with the models of a folder, one a line.

    hf_losses.py FOLDER NAME...      in float32; FOLDER/text.txt is read as bytes

Fails if transformers misses a tensor or finds one too many."""
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
folder = sys.argv[1]
with open(f"{folder}/text.txt", "rb") as f:
    ids = torch.tensor([list(f.read())])
for name in sys.argv[2:]:
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        f"{folder}/{name}", dtype=torch.float32, output_loading_info=True,
        attn_implementation="eager")
    wrong = {key: found for key, found in info.items() if found}
    if wrong:
        sys.exit(f"{name}: {wrong}")
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits[0].double(), ids[0, 1:])
    print(f"{name} {loss.item():.7f}")
