local tiny = require "models.tiny"
experiment { name = "lost", model = tiny.llama }
