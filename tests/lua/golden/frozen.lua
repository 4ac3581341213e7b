local tiny = require "models.tiny"
return experiment {
  name = "frozen", model = tiny.llama, recipe = bf16, data = synthetic,
  train = {
    steps = 1, global_batch = 1, freeze = "embed",
    lr_scale = { embed = -1, layers = { ["0"] = "x" }, head = 2 },
  },
}
