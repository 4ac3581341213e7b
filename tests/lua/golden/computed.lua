-- Keys that no constructor writes are placed at the call.
local key = "stepss"
local circle = { vocab = 256 }
circle.rope = circle
local train = { [key] = 10, global_batch = 8 }
train.batch = 2

return experiment {
  name = "computed",
  model = circle,
  recipe = fp8.delayed { ["mar" .. "gins"] = 1, [1.5] = 2, ["history\0"] = 1,
                         ["histori"] = 3 },
  data = synthetic { seed = function() return 1, { 2 } end },
  train = train,
}
