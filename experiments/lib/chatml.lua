-- Renders a conversation as ChatML, as chatml.jinja beside it does: render = require "chatml".
-- Loss is on what an assistant wrote and on the end of its turn. Only the marks of turns, which are
-- written here, may be special tokens: "<|im_end|>" in a message stays text.
return function(conversation)
  local out = {}
  for _, m in ipairs(conversation.messages) do
    out[#out + 1] = { text = "<|im_start|>" .. m.role .. "\n", special = true }
    out[#out + 1] = { text = m.content, role = m.role }
    out[#out + 1] = { text = "<|im_end|>", role = m.role, special = true }
    out[#out + 1] = { text = "\n" }
  end
  return out
end
