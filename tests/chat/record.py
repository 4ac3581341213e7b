#!/usr/bin/env python3
"""Writes recorded.jsonl: what the package transformers renders. Run by hand with its environment.

    record.py >recorded.jsonl

Each line has `template` (a file in templates/) or `source` (a template), `row` (a conversation),
`prompt`, and `text`: the result, or null if the template raises. The first line names the releases.
"""

import json
import pathlib
import sys

import jinja2
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import compare_packages  # noqa: E402
from conversations import generate  # noqa: E402

SOURCES = r"""
{{ 1 + 2 * 3 - 4 // 3 }}|{{ 7 % 3 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ 7 / 2 }}
{{ 1.5 + 1 }}|{{ 1e3 }}|{{ 0.1 + 0.2 }}|{{ 1_000 }}|{{ 1e22 }}|{{ 3.0 // 2 }}|{{ -7.5 % 2 }}
{{ 5 / 0 }}
{{ true + true }}|{{ not 0 }}|{{ 1 == 1.0 }}|{{ true == 1 }}|{{ none == false }}|{{ 'a' < 'b' < 'c' }}
{{ 'a' 'b' "c" }}|{{ 'it\'s\n\t\x41\u00e9\\ \q' }}|{{ "é" ~ 1 ~ none ~ true ~ undefined_thing }}
{{ [1, 'a', 2.5, none, true, ['x']] }}|{{ {'a': 1, 'b': [1]} }}|{{ (1,) }}|{{ () }}|{{ (1, 'it\'s') }}
{{ 'a' if false }}|{{ 'a' if 0 else 'b' }}|{{ 1 if 1 else 2 if 0 else 3 }}|{{ missing }}
{{ missing.x }}
{{ messages[0].missing }}|{{ messages[0].missing is defined }}|{{ messages[9] }}|{{ messages[-1].role }}
{{ messages[0].missing.more }}
{{ missing[0] }}
{{ missing + 1 }}
{{ missing == none }}|{{ missing is none }}|{{ missing is iterable }}|{{ missing is sequence }}|{{ missing | length }}
{{ 'abcdef'[1:4] }}|{{ 'abcdef'[::-1] }}|{{ 'abcdef'[-2:] }}|{{ 'abcdef'[::2] }}|{{ 'añb'[1] }}|{{ 'añb'[-1] }}
{{ [1,2,3,4][1:-1] }}|{{ [1,2,3,4][::-1] }}|{{ [1,2,3,4][5:] }}|{{ [1,2,3,4][-9:2] }}|{{ [1,2,3][3:0:-2] }}
{{ 'a b  c'.split() }}|{{ 'a,b,,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a b c '.split(None, 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}
{{ 'abc'.split('') }}
{{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'abcab'.rstrip('ab') }}|{{ '  x　'|trim }}|{{ 5|trim }}
{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'abcabc'.replace('b', 'X') }}|{{ 'aaa'.replace('a', 'b', 2) }}
{{ 'abcabc'.find('c') }}|{{ 'abcabc'.rfind('c') }}|{{ 'ñc'.find('c') }}|{{ 'abc'.find('x') }}|{{ 'banana'.count('an') }}|{{ 'abc'.index('c') }}
{{ 'Hello wORLD'.title() }}|{{ 'hELLO'.capitalize() }}|{{ 'ÀÉ'.lower() }}|{{ 'ab'.upper() }}|{{ 'a1'.isdigit() }}|{{ '12'.isdigit() }}|{{ 'ab'.isalpha() }}
{{ 'a\nb\r\nc\n'.splitlines() }}|{{ 'pre-x'.removeprefix('pre-') }}|{{ 'x.py'.removesuffix('.py') }}|{{ ', '.join(['a', 'b']) }}
{{ ', '.join([1]) }}
{{ [1, 'b', none] | join('-') }}|{{ messages | join(',', attribute='role') }}|{{ 'abc' | join('.') }}
{{ messages | map(attribute='role') | list }}|{{ ['a', 'b'] | map('upper') | join }}|{{ [{'a': 1}, {}] | map(attribute='a', default=0) | list }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}|{{ messages | rejectattr('tool_calls') | list | length }}
{{ [0, 1, '', 'x', none] | select | list }}|{{ [1, 2, 3, 4] | reject('odd') | list }}|{{ [1, 5, 3] | select('gt', 2) | list }}
{{ {'b': 1, 'A': 2} | dictsort }}|{{ {'b': 1, 'a': 2} | dictsort(by='value') }}|{{ {'b': 1, 'A': 2} | dictsort(true) }}|{{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}
{{ [3, 1, 2] | sort }}|{{ ['b', 'A', 'a'] | sort }}|{{ [1, 1, 2] | unique | list }}|{{ [1, 2] | reverse | list }}|{{ 'abc' | reverse }}|{{ [3, 1] | sort(reverse=true) }}
{{ [1, 2] | first }}|{{ [1, 2] | last }}|{{ [] | first }}|{{ 'abc' | list }}|{{ {'a': 1} | list }}|{{ [1, 2] | length }}
{{ 5 | length }}
{{ '42' | int }}|{{ 'x' | int }}|{{ 'x' | int(7) }}|{{ '3.7' | int }}|{{ 3.9 | int }}|{{ '1.5' | float }}|{{ -3 | abs }}|{{ true | int }}
{{ missing | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ none | default('d') }}|{{ missing | d }}|{{ 0 | default(1, boolean=true) }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ '' | indent }}|{{ 'a\n' | indent }}
{{ 'a<b' | safe }}|{{ 5 | string }}|{{ none | string }}|{{ [1] | string }}|{{ 1.0 | string }}
{{ {'a': [1, 2.0, none, true, 'é"\\\n\x1f'], 'b': {}} | tojson }}|{{ {'b': 1, 'a': []} | tojson(indent=2) }}|{{ 'é😀\x7f' | tojson(ensure_ascii=true) }}
{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}|{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}|{{ {1: 2, none: 3} | tojson }}|{{ [[], {}] | tojson(indent=1) }}
{{ [1e-5, 1e16, 0.1, 100.0, 1e300] | tojson }}
{{ missing | tojson }}
{{ 'it\'s' | list }}|{{ ['it\'s', "\"", 'a"\'b', '\n\x00\u00a0é\u200b'] }}
{% for a in [1, 2, 3] %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }} {% endfor %}|{% for k in {'a': 1} %}{{ k }}{% endfor %}|{% for c in 'añ' %}<{{ c }}>{% endfor %}
{% for k, v in {'a': 1} | items %}{{ k }}{{ v }}{% endfor %}|{% for x in missing %}x{% else %}none{% endfor %}|{% for x in [1, 2, 3, 4] if x is even %}{{ loop.index }}:{{ x }} {% endfor %}
{% for x in 5 %}{% endfor %}
{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }},{% endfor %}|{% for x in range(3) %}{{ x }}{% endfor %}|{{ range(1, 7, 2) | list }}|{{ range(3, 0, -1) | list }}|{{ range(3) | length }}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(x=1, y=[]) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, %}{{ t }}{% if true %}{% set q = 5 %}{% endif %}{{ q }}
{% set x %}  text {{ 1 }} {% endset %}[{{ x }}]{% set y | trim | upper %} abc {% endset %}[{{ y }}]
{% macro m(a, b='B', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(a=3, c=4) }}{{ m() }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 9 %}{% endmacro %}{% set x = 2 %}{{ m() }}{{ x }}
{% macro fact(n) %}{% if n > 1 %}{{ n * (fact(n - 1) | int) }}{% else %}1{% endif %}{% endmacro %}{{ fact(10) }}
{% if '' %}a{% elif [] %}b{% elif 0.0 %}c{% elif {} %}d{% else %}e{% endif %}|{% if 'x' and [0] %}t{% endif %}|{{ '' or 'y' }}|{{ 'a' and '' }}|
{{ 'a' in 'abc' }}|{{ 2 in [1, 2] }}|{{ 'k' in {'k': 1} }}|{{ 'x' not in 'abc' }}|{{ 1 in missing }}|{{ (1 in [1.0]) }}
{{ 1 in 'abc' }}
{{ 1 is number }}|{{ true is number }}|{{ true is integer }}|{{ 1 is integer }}|{{ 1.0 is float }}|{{ 'a' is string }}|{{ {} is mapping }}|{{ [] is sequence }}|{{ 'a' is sequence }}|{{ none is none }}
{{ 4 is divisibleby 2 }}|{{ 3 is odd }}|{{ 1 is in [1] }}|{{ 1 is not in [1] }}|{{ 'a' is eq 'a' }}|{{ 2 is ge(2) }}|{{ true is true }}|{{ 1 is true }}|{{ false is boolean }}|{{ not x is defined }}
{{ {'items': 5}['items'] }}|{{ {'a': 5}.get('a') }}|{{ {'a': 5}.get('b') }}|{{ {'a': 5}.get('b', 6) }}|{{ {'a': 1}.keys() | list }}|{{ {'a': 1}.values() | list }}
{{ {'a': 1}['b'] }}|{{ {'a': 1}.a }}|{{ none.x }}|{{ 'abc'.x }}|{{ [1].x }}|{{ [1, 2]['x'] }}|{{ 5[0] }}|{{ [1, 2].index(2) }}|{{ [1, 1].count(1) }}
{{ [1] + [2] }}|{{ (1,) + (2,) }}|{{ 'ab' * 2 }}|{{ [0] * 3 }}
{{ 'a' + 1 }}
{{ [1] + (2,) }}
{{ 'a' ~ [1] ~ {'b': 2} }}|{{ 1 ~ 2 }}|{{ 'x' + 'y' | upper }}|{{ -1 | abs }}
{{ 2 + 3 | string }}
{{ raise_exception('no') }}
{{ dict(a=1, b='x') }}|{{ dict({'a': 1}, b=2) }}|{{ namespace(a=1).a }}
{{ nofunction() }}
{{ 'a'.nomethod() }}
{%- set x = 1 -%}  a  {{- x -}}  b  {%+ if true %}c{%+ endif %}
a
  {% if true %}
  b
  {% endif %}
  {{ 1 }}
  {# comment #}
c
{# a - b #}x{#- y -#}  z  {#+ w +#}
v
{% raw %}{{ not }} {% evaluated %}{% endraw %}|{%- raw -%}  {{ x }}  {%- endraw -%} y
{{ '}}' }}|{{ {'a': {'b': 1}}['a']['b'] }}|{{ "{%" }}|{{ [[1, 2], [3]][0][1] }}|{{ messages.0.role }}
{{ add_generation_prompt }}|{{ tools }}|{{ documents }}|{{ bos_token }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A %B %y') }}
{% generation %}a{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}
{{ ['a', 'b', 'c'] | select('in', ['a', 'c']) | list }}|{% set g = [] | select %}{{ 'true' if g else 'false' }}
{{ (1, 2) == [1, 2] }}|{{ [1, 2] == [1, 2] }}|{{ {'a': [1]} == {'a': [1]} }}|{{ 'a' == 1 }}|{{ 1 < 2 > 1 }}
{{ 1 < 'a' }}
{{ messages[0] }}
{{ messages | tojson }}
{{ messages[0].content[::-1] ~ messages[0].content | length }}
"""

ROW = {"messages": [{"role": "user", "content": "Hé said \"it's\" 1\n"},
                    {"role": "assistant", "content": None, "thinking": "t", "tool_calls": [
                        {"function": {"name": "f", "arguments": {"x": 0.1, "y": None}}}]},
                    {"role": "assistant", "content": " fine "}]}


def snippets():
    """The lines above; a line that begins a block of text goes to its last line."""
    lines = SOURCES.strip("\n").split("\n")
    while lines:
        line = lines.pop(0)
        while lines and line.count("{%") + line.count("{{") == 0 or \
                (lines and not lines[0].startswith(("{{", "{%", "{#", "a"))):
            line += "\n" + lines.pop(0)
        yield line


def record(case, source, prompt):
    try:
        text = compare_packages.theirs(source, case["row"], prompt)
    except Exception:  # whatever the template raises
        text = None
    print(json.dumps({**case, "prompt": prompt, "text": text}, ensure_ascii=False))


def main():
    print(json.dumps({"transformers": transformers.__version__, "jinja2": jinja2.__version__,
                      "date": compare_packages.DATE, "tokens": compare_packages.TOKENS}))
    for source in snippets():
        record({"source": source, "row": ROW}, source, False)
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for number, row in enumerate(generate(7, 12)):
            record({"template": path.name, "row": row}, source, number % 2 == 0)


if __name__ == "__main__":
    main()
