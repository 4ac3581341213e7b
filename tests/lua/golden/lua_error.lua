local llama3 = require "models.llama3"
return experiment {
  name = "no-such-size",
  model = llama3["9b"] { seq_len = 64 },
}
