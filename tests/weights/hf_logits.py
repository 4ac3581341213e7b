"""The logits of a prompt's last byte that transformers gives, beside those of logits.npy.

    hf_logits.py FOLDER PROMPT NAME...    in float32; reads FOLDER/NAME/logits.npy, which
                                          `fp8lab generate --logits` wrote for the prompt

Prints for each model: the name; the largest difference of all logits, relative to the largest
logit; the largest logit; eight logits behind the last byte. Fails above 1e-5."""
import sys

import numpy
import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
folder, prompt = sys.argv[1:3]
ids = torch.tensor([list(prompt.encode())])
wrong = False
for name in sys.argv[3:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        f"{folder}/{name}", dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        wanted = model(ids).logits[0].numpy()
    found = numpy.load(f"{folder}/{name}/logits.npy")
    largest = abs(wanted).max()
    worst = abs(found - wanted).max() / largest if found.shape == wanted.shape else 1
    print(name, f"{worst:.1e}", f"{largest:.6f}", *(f"{x:.6f}" for x in wanted[-1, :8]))
    wrong = wrong or worst > 1e-5
sys.exit(int(wrong))
