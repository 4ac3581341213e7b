"""Generated conversations for the tests of chat templates: the same for one seed everywhere.

generate(seed, count) yields dicts with messages and sometimes tools, as rows of JSON lines. They
cover system prompts, several turns, tool calls, reasoning in three spellings, empty texts, Unicode
spaces, quotes, and numbers whose JSON form differs between libraries.
"""

import random

WORDS = [
    "the", "answer", "is", "42", "naïve", "À", "数学", "مرحبا", "🙂", "e\u0301", "if (a < b && c > d)",
    "{\"k\": [1, 2]}", "it's", "\"quoted\"", "back\\slash", "tab\there", "line\nbreak", "<b>",
    "&amp;", "</think>", "<think>", "\u00a0", "\u3000", "{{ x }}", "{% if %}", "\x1f", "\u2028",
    "\r\n", "'", "%s",
]
EDGES = ["", "", "", " ", "\n", "\n\n", "\u3000", "\x1c", "\t"]
NUMBERS = [0, -1, 7, 10**15, 2**62, 0.1, 1e-5, 1e16, 1.5, -0.0, 123456789.125, 1e22, 3.0]
NAMES = ["get_weather", "add", "search.web", "größe"]
THINKING = ["reasoning_content", "thinking", "reasoning"]


def text(draw, low=0, high=8):
    words = [draw.choice(WORDS) for _ in range(draw.randint(low, high))]
    return draw.choice(EDGES) + " ".join(words) + draw.choice(EDGES)


def json_value(draw, depth=0):
    kind = draw.randint(0, 7 if depth < 2 else 5)
    if kind < 2:
        return text(draw, 0, 3)
    if kind < 4:
        return draw.choice(NUMBERS)
    if kind == 4:
        return draw.choice([True, False])
    if kind == 5:
        return None
    if kind == 6:
        return [json_value(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    return {f"k{i}": json_value(draw, depth + 1) for i in range(draw.randint(0, 3))}


def tool(draw):
    names = draw.sample(["city", "unit", "items", "π"], draw.randint(1, 3))
    kinds = [{"type": "string", "description": text(draw, 1, 3)},
             {"type": "integer"}, {"type": "string", "enum": ["a", "b"]},
             {"type": "array", "items": {"type": "number"}}]
    return {"type": "function", "function": {
        "name": draw.choice(NAMES), "description": text(draw, 1, 4),
        "parameters": {"type": "object", "properties": {n: draw.choice(kinds) for n in names},
                       "required": names[:1]}}}


def tool_call(draw, number):
    arguments = {f"a{i}": json_value(draw) for i in range(draw.randint(0, 3))}
    call = {"type": "function", "function": {"name": draw.choice(NAMES), "arguments": arguments}}
    if draw.random() < 0.8:
        call["id"] = f"call{number:05d}"
    return call


def assistant(draw, final):
    message = {"role": "assistant", "content": text(draw)}
    if draw.random() < 0.25:
        message["content"] = f"<think>\n{text(draw)}\n</think>\n\n{text(draw)}"
    elif draw.random() < 0.25:
        message[draw.choice(THINKING)] = text(draw)
    if not final and draw.random() < 0.3:
        message["content"] = draw.choice(["", text(draw), None])
        message["tool_calls"] = [tool_call(draw, i) for i in range(draw.choice([1, 1, 1, 2]))]
    return message


def conversation(draw):
    messages = []
    row = {"messages": messages}
    if draw.random() < 0.4:
        messages.append({"role": "system", "content": text(draw)})
    tools = draw.random() < 0.4
    if tools:
        row["tools"] = [tool(draw) for _ in range(draw.randint(1, 3))]
    for _ in range(draw.randint(1, 3)):
        messages.append({"role": "user", "content": text(draw)})
        for step in range(3):
            messages.append(assistant(draw, not tools or step == 2))
            calls = messages[-1].get("tool_calls")
            if not calls:
                break
            for call in calls:
                answer = {"role": "tool", "content": text(draw), "name": call["function"]["name"]}
                if "id" in call:
                    answer["tool_call_id"] = call["id"]
                messages.append(answer)
    if draw.random() < 0.1:
        messages.append({"role": "user", "content": text(draw)})
    return row


def generate(seed, count):
    draw = random.Random(seed)
    for _ in range(count):
        yield conversation(draw)
