-- error() without a message: the line, and no traceback.
local model = nil
error(model)
