local tiny = { vocab = 512, seq_len = 64, layers = 1, width = 64, heads = 4, ffn = 128 }
local function run(name, data)
  return experiment {
    name = name, model = tiny, recipe = bf16, data = data,
    train = { steps = 1, global_batch = 1 },
  }
end
return suite {
  name = "tokenised",
  run("bytes", text { "a.txt", field = "text", order = "documents" }),
  run("numbers", text { "a.txt", tokenizer = 5, skip_bad = -1 }),
  run("words", text { "a.txt", tokenizer = "t.json", layout = "packing", mask = true }),
  run("whole", text { "a.txt", tokenizer = "t.json", layout = "padded", order = "documents" }),
  run("none", chats { "a.jsonl" }),
  run("long", chats { "a.jsonl", tokenizer = "t/", max_tokens = 65, loss = "some" }),
  run("other", chats { "a.jsonl", tokenizer = "t/", field = "text" }),
  run("llmc", tokens { path = "a.bin", format = "llmc", mask = "document", loss = true }),
}
