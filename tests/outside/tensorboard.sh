#!/bin/bash
# The package tensorboard reads the event files of a done run, and of one that was killed and
# resumed: each step once, with the values of the records; FP8 figures, texts, histograms,
# hyperparameters. A torn record at the end costs no other.
set -u
. tests/outside/lib.sh

sed 's/eval = {/sample = { every = 240, tokens = 4, prompts = { { 1, 2, 3 }, { 7 } } }, eval = {/
     s/checkpoint = {.*/checkpoint = { every = 160 }, tensorboard = { histograms = 160 },/' \
    "$tests/tiny.lua" >drawn.lua
run() { # RUNS [OPTIONS...]
    local runs=$1
    shift
    "$FP8LAB" run drawn.lua --lib "$lib" --threads 1 --runs "$runs" --set train.steps=480 "$@" \
        >out 2>>log
}
run done || fail "the run: exit code $?"

# Killed after its checkpoint: what it had drawn of later steps is lost, and drawn again.
run killed &
await_step killed 200
kill -KILL "$(runner_of killed)"
wait $! 2>/dev/null
flock -w 60 killed/*/lock true
first=$(echo killed/*/data/tensorboard/*)
printf '\x20\0\0\0\0\0\0\0torn' >>"$first"
"$FP8LAB" run --resume last --runs killed --threads 1 >out 2>>log || fail "the resumed run: $?"

for runs in done killed; do
    tar --zstd -xf $runs/*.tar.zst -C $runs || fail "$runs has no bundle"
done
expect "event files of the resumed run" 2 "$(ls killed/*/data/tensorboard | wc -l)"
python - done/*/data killed/*/data <<'PY' >log 2>&1 || fail "the package reads them otherwise"
import glob, json, struct, sys
import numpy
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util

def hparams(events, tag):
    content = events.SummaryMetadata("_hparams_/" + tag).plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)

for run in sys.argv[1:]:
    all = {kind: 0 for kind in ("scalars", "tensors")}
    events = event_accumulator.EventAccumulator(run + "/tensorboard", size_guidance=all)
    events.Reload()
    tags = events.Tags()
    for stream in ("train", "eval"):
        records = [json.loads(line) for line in open(f"{run}/metrics/{stream}.jsonl")]
        for metric in records[0]:
            if metric == "step" or metric.endswith("_bits"):
                continue
            drawn = [(e.step, e.value) for e in events.Scalars(f"{stream}/{metric}")]
            wanted = [(r["step"], float(numpy.float32(r[metric]))) for r in records]
            assert drawn == wanted, (run, stream, metric, drawn, wanted)
    assert "train/step" not in tags["scalars"]
    fp8 = numpy.load(run + "/metrics/fp8.npy")
    labels = json.load(open(run + "/metrics/fp8_slots.json"))
    for k, label in enumerate(labels):
        for metric in ("amax", "scale", "saturated", "underflow"):
            drawn = [e.value for e in events.Scalars(f"fp8/{label}/{metric}")]
            assert drawn == list(fp8[metric][:, k].astype("f4")), (run, label, metric)

    kinds = {}
    for tag in tags["tensors"]:
        plugin = events.SummaryMetadata(tag).plugin_data.plugin_name
        kinds.setdefault(plugin, []).append(tag)
    samples = [json.loads(line) for line in open(run + "/metrics/samples.jsonl")]
    assert sorted(kinds["text"]) == ["samples/0", "samples/1"], kinds["text"]
    for number, tag in enumerate(sorted(kinds["text"])):
        drawn = events.Tensors(tag)
        wanted = [r for r in samples if r["number"] == number]
        assert [e.step for e in drawn] == [r["step"] for r in wanted] == [240, 480], (run, tag)
        for event, record in zip(drawn, wanted):
            text = tensor_util.make_ndarray(event.tensor_proto)[0].decode()
            assert str(record["ids"]).replace(" ", "") in text, (text, record)
    groups = {tag.split("/")[0] for tag in kinds["histograms"]}
    assert groups == {"weights", "gradients", "activations"}, groups
    for tag in kinds["histograms"]:
        drawn = events.Tensors(tag)
        assert [e.step for e in drawn] == [160, 320, 480], (run, tag, drawn)
        for event in drawn:
            rows = tensor_util.make_ndarray(event.tensor_proto)
            assert rows.shape[1] == 3 and (rows[1:, 0] == rows[:-1, 1]).all(), (tag, rows)
            assert (rows[:, 0] < rows[:, 1]).all() and rows[:, 2].sum() > 0, (tag, rows)

    start = hparams(events, "session_start_info").session_start_info
    config = json.load(open(run + "/experiment/resolved.json"))
    assert start.hparams["train.optimizer.lr"].number_value == config["train"]["optimizer"]["lr"]
    assert start.hparams["recipe.kind"].string_value == "fp8.delayed"
    assert start.hparams["model.tied"].bool_value is False
    assert hparams(events, "session_end_info").session_end_info.status == 1
print("tensorboard reads all")
PY
exit $failed
