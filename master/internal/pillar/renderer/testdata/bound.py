"""Keeps code of more templates than there is room for, and prints for each kind of
template the memory that it takes and the bound. reads.py and jinjacode.py stand before."""

import gc
import tracemalloc

import jinja2.environment

STATEMENTS = """{{% set v{0} = grains.get('k', {0}) %}}{{% for x in v{0} %}}{{{{ x|upper }}}} text
{{% endfor %}}{{% if v{0} is defined %}}a: {{{{ v{0} }}}}{{% endif %}}
"""

SHAPES = {
    "tiny": "x",
    "statements": "".join(STATEMENTS.format(i) for i in range(8)),
    "wide characters": "\U0001f600" * 1500,
    "comment": "{# " + "a comment " * 2000 + "#}",
}

JinjaCode.MOST, JinjaCode.MOST_BYTES = 30, 300_000
make = jinja2.environment.Environment.compile
for name, body in SHAPES.items():
    tracemalloc.start()
    kept = JinjaCode()
    kept.install()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(40):
        kept.sandbox().from_string(f"{{# {i} #}}{body}")
    gc.collect()
    took = tracemalloc.get_traced_memory()[0] - before
    print(name, len(kept.kept), kept.size, took, sep="\t")
    jinja2.environment.Environment.compile = kept.make = make
    tracemalloc.stop()
