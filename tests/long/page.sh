#!/bin/bash
# timeout: 600
# The page of compare in a headless Chromium: its script runs under the page's own policy without a
# word on the console, at two widths. The address chooses axis, hidden lines and a place, as the
# buttons do. tests/support/browser.py then clicks, drags, turns the wheel and types.
set -u
. tests/cli/lib.sh
browser=$(command -v chromium || command -v chromium-browser) || {
    echo "FAILED: chromium is missing: apt-get install chromium"
    exit 1
}

# visit PAGE ADDRESS WIDTH: the page's final elements in `dom`, what it said in `console`.
visit() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --no-first-run \
        --disable-background-networking --disable-component-update --disable-extensions \
        --user-data-dir="$TEST_TMP/profile" --enable-logging=stderr --window-size="$3,900" \
        --virtual-time-budget=3000 --dump-dom "file://$PWD/$1$2" >dom 2>log ||
        fail "$1$2: chromium failed"
    grep CONSOLE log >console
}

count() { grep -oE -- "$1" dom | wc -l; }

"$FP8LAB" compare "$root"/experiments/reference/cpu/*.tar.zst --html page.html >out 2>log ||
    fail "no page"
plots=$(grep -c '<figure data-plot' page.html)

# The check itself: a resource and a foreign script are both refused, and said so.
sed 's|<h1>|<img src="http://127.0.0.1:9/x.png"><script>document.title = "foreign"</script>&|' \
    page.html >foreign.html
visit foreign.html "" 1600
expect "refusals" 2 "$(grep -c 'Content Security Policy' console)"
grep -q '<title>foreign' dom && fail "a foreign script ran"
drive() { # PAGE WIDTH: what is wrong, in `log`
    timeout 120 python3 "$root/tests/support/browser.py" "$browser" "$TEST_TMP/driven" "$1" "$2" \
        >log 2>&1
}
drive foreign.html 1600 && fail "a foreign page is right"
says "the console: "

for width in 400 1600; do
    visit page.html "" "$width"
    [ -s console ] && fail "at $width pixels: $(cat console)"
    expect "axis" "$plots" "$(count '>step</text>')"
    expect "buttons that are on" "$((6 * plots))" "$(count 'aria-pressed="true"')"
    lines=$(count '<path class="data k1"')
    [ "$lines" -gt 0 ] || fail "B has no line"

    visit page.html "#x=time&hide=B&at=0.5" "$width"
    [ -s console ] && fail "at $width pixels: $(cat console)"
    expect "axis" "$plots" "$(count '>time of training, s</text>')"
    expect "buttons that are off" "$plots" "$(count 'aria-pressed="false"')"
    expect "lines of B" 0 "$(count '<path class="data k1"')"
    drive page.html "$width" || fail "at $width pixels"
    expect "place" 1 "$(count '<div class="tip" role="status" style="[^"]*"><div>0.5 s</div>')"
done

visit page.html "#x=tokens&zoom=1,2000" 1600
[ -s console ] && fail "zoomed: $(cat console)"
expect "axis" "$plots" "$(count '>tokens</text>')"
grep -q '<button type="button">Whole axis' dom || fail "the zoom cannot be reset"
# An address that says nonsense shows the whole page.
visit page.html "#x=__proto__&hide=ZZ,%00&zoom=9,1&at=NaN" 1600
[ -s console ] && fail "nonsense: $(cat console)"
expect "axis" "$plots" "$(count '>step</text>')"

bundle=$root/experiments/reference/cpu/repro-cpu-bf16.tar.zst
"$FP8LAB" show "$bundle" --html one.html >out 2>log ||
    fail "no page of one run"
visit one.html "" 400
[ -s console ] && fail "one run: $(cat console)"
expect "axis of one run" "$(grep -c '<figure data-plot' one.html)" "$(count '>step</text>')"
exit "$failed"
