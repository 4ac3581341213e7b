"""Drives a headless Chromium over its debugging pipe: real clicks, drags, wheel and keys on the
page of compare. Prints what is wrong; exits 1 then.

    browser.py CHROMIUM PROFILE_FOLDER PAGE.html WIDTH
"""
import json
import os
import subprocess
import sys

BROWSER, PROFILE, PAGE, WIDTH = sys.argv[1:5]
URL = "file://" + os.path.abspath(PAGE)


class Pipe:
    """Commands go to descriptor 3 of the browser, answers and events come from its 4."""

    def __init__(self):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def descriptors():
            a, b = os.dup(to_read), os.dup(from_write)  # away from 3 and 4
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update",
             "--remote-debugging-pipe", "--user-data-dir=" + PROFILE,
             f"--window-size={WIDTH},900", "about:blank"],
            preexec_fn=descriptors, close_fds=False, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.rest, self.number, self.session, self.events = b"", 0, None, []

    def message(self):
        while b"\0" not in self.rest:
            piece = os.read(self.from_read, 1 << 16)
            if not piece:
                sys.exit("the browser ended")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **params):
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.to_write, json.dumps(command).encode() + b"\0")
        while True:
            m = self.message()
            if m.get("id") == self.number:
                if "error" in m:
                    sys.exit(f"{method}: {m['error']}")
                return m["result"]
            self.events.append(m)

    def wait(self, method):
        while not any(e["method"] == method for e in self.events):
            self.events.append(self.message())

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            sys.exit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")


pipe = Pipe()
wrong = []


def expect(what, wanted, found):
    if wanted != found:
        wrong.append(f"{what}: wanted {wanted!r}, found {found!r}")


def middle(selector):
    """The place of an element's middle, after scrolling to it, and its width."""
    return pipe.value(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
        e.scrollIntoView({{ block: "center" }}); const b = e.getBoundingClientRect();
        return [b.x + b.width / 2, b.y + b.height / 2, b.width]; }})()""")


def mouse(kind, x, y, **more):
    pipe.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)


def press(x, y, to_x=None, clicks=1):
    button = {"button": "left", "buttons": 1, "clickCount": clicks}
    mouse("mouseMoved", x, y)
    mouse("mousePressed", x, y, **button)
    if to_x is not None:
        mouse("mouseMoved", (x + to_x) / 2, y, button="left", buttons=1)
        mouse("mouseMoved", to_x, y, button="left", buttons=1)
    mouse("mouseReleased", x if to_x is None else to_x, y, button="left", clickCount=clicks)


def key(name, text=None):
    more = {"text": text} if text else {}
    pipe.ask("Input.dispatchKeyEvent", type="keyDown", key=name, **more)
    pipe.ask("Input.dispatchKeyEvent", type="keyUp", key=name)


def takes_focus(node):
    return any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", []))


def zoomed():
    return "zoom=" in pipe.value("location.hash")


target = pipe.ask("Target.createTarget", url="about:blank")["targetId"]
pipe.session = pipe.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
for domain in ("Page", "Runtime", "Network", "Log"):
    pipe.ask(domain + ".enable")
pipe.ask("Page.navigate", url=URL)
pipe.wait("Page.loadEventFired")

LINES = "document.querySelectorAll('figure svg path[class=\"data k1\"]').length"
PLOT = "figure[data-plot=train_loss] > svg"
ENTRY = "figure[data-plot=train_loss] .legend button[data-group='1']"
lines = pipe.value(LINES)
expect("lines of B are drawn", True, lines > 0)
expect("the page is as wide as the window", True,
       pipe.value("document.documentElement.scrollWidth <= innerWidth"))
press(*middle(ENTRY)[:2])
expect("lines of B after a click", 0, pipe.value(LINES))
expect("the entry's state", "false",
       pipe.value(f"document.querySelector({json.dumps(ENTRY)}).getAttribute('aria-pressed')"))
press(*middle(ENTRY)[:2])
expect("lines of B after another click", lines, pipe.value(LINES))

x, y, width = middle(PLOT)
press(x - width / 8, y, to_x=x + width / 8)
expect("zoomed by a drag", True, zoomed())
press(x, y)
press(x, y, clicks=2)
expect("zoomed after a double click", False, zoomed())
mouse("mouseWheel", x, y, deltaX=0, deltaY=-100, modifiers=2)
expect("zoomed by Ctrl and the wheel", True, zoomed())
pipe.value(f"document.querySelector({json.dumps(PLOT)}).focus()")
key("Escape")
expect("zoomed after Escape", False, zoomed())
key("+", "+")
expect("zoomed by +", True, zoomed())
key("ArrowRight")
expect("values are shown", True,
       pipe.value("document.querySelector('figure[data-plot=train_loss] .tip:not([hidden])')"
                  "?.textContent.includes('bf16')"))
press(*middle(".controls button")[:2])
expect("zoomed after the button", False, zoomed())
press(*middle(".controls input[value=time]")[:2])
expect("the address", "#x=time", pipe.value("location.hash"))
expect("the axis", True, pipe.value(
    "document.querySelector('figure svg .axis').textContent.startsWith('time of training')"))

# What takes the focus has a name and shows that it has it; a table fits a wide window, and paper.
nameless = [n["role"]["value"] for n in pipe.ask("Accessibility.getFullAXTree")["nodes"]
            if takes_focus(n) and not n.get("name", {}).get("value")]
expect("elements with the focus and no name", [], nameless)
pipe.value("document.activeElement.blur()")
seen = set()
for _ in range(12):
    pipe.ask("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab",
             windowsVirtualKeyCode=9)
    pipe.ask("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab",
             windowsVirtualKeyCode=9)
    seen.add(pipe.value("getComputedStyle(document.activeElement).outlineStyle"))
expect("outlines of the focus", {"solid"}, seen)
WIDE = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth).length"
if int(WIDTH) >= 1600:
    expect("tables that scroll sideways", 0, pipe.value(WIDE))
pipe.ask("Emulation.setEmulatedMedia", media="print")
pipe.ask("Emulation.setDeviceMetricsOverride", width=720, height=900, deviceScaleFactor=1,
         mobile=False)
expect("tables wider than paper", 0, pipe.value(WIDE))
expect("figures in two lines on paper", 0, pipe.value("""[...document.querySelectorAll('td.n')]
    .filter(e => { const r = document.createRange(); r.selectNodeContents(e.firstChild ?? e);
                   return r.getClientRects().length > 1; }).length"""))

for event in pipe.events:
    params = event.get("params", {})
    if event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
        wrong.append(f"the console: {json.dumps(params)[:300]}")
    if event["method"] == "Network.requestWillBeSent" and params["request"]["url"] != URL:
        wrong.append(f"a request: {params['request']['url']}")
pipe.session = None
pipe.ask("Browser.close")
pipe.process.wait()
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
